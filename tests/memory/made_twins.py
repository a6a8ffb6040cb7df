"""Made pairs of facts about one subject: twins, contradictions, and facts that merely share a topic."""

from typing import NamedTuple


class Pair(NamedTuple):
    """Two facts about one subject under two keys."""

    subject: str
    predicate: str
    content: str
    other_predicate: str
    other_content: str


TWINS = tuple(
    Pair(*each)
    for each in (
        ("user", "favourite_color", "purple", "favorite_colour", "purple"),
        ("user", "favourite_color", "purple", "likes_color", "likes purple best"),
        ("user", "lives_in", "Lisbon", "home_city", "lives in Lisbon"),
        ("user", "allergic_to", "peanuts: her throat swells", "allergy", "allergic to peanuts, the throat swells"),
        ("user", "works_at", "Siemens in Munich", "employer", "Siemens, Munich"),
        ("user", "birthday", "12 March 1984", "date_of_birth", "born on 12 March 1984"),
        ("Ada", "drinks", "green tea in the morning", "morning_drink", "green tea"),
        ("Ada", "plays", "the cello in a quartet", "instrument", "plays cello in a string quartet"),
        ("Ada", "married_to", "Tom", "spouse", "Tom is her husband"),
        ("dog", "name", "Bruno", "is_called", "Bruno"),
        ("project Atlas", "deadline", "end of June", "due_date", "due at the end of June"),
        ("project Atlas", "database", "PostgreSQL 16", "uses_database", "it runs on PostgreSQL 16"),
        ("user", "diet", "vegetarian", "eating_habits", "eats no meat, vegetarian"),
        ("user", "gym_days", "Monday and Thursday", "trains_on", "goes to the gym on Mondays and Thursdays"),
        ("server", "backup_time", "every night at 2", "backup_schedule", "backups run at 2 every night"),
        ("user", "car", "a red Skoda", "drives", "drives a red Skoda"),
        ("user", "sister", "Marta", "sister_name", "her sister is called Marta"),
        ("user", "preferred_language", "answers in Portuguese", "language", "wants answers in Portuguese"),
        ("office", "wifi", "slow on the third floor", "wifi_quality", "the wifi on the third floor is slow"),
        ("user", "dentist", "Dr. Alves, Rua do Ouro 5", "dental_practice", "goes to Dr. Alves in Rua do Ouro 5"),
    )
)

CONTRADICTIONS = tuple(
    Pair(*each)
    for each in (
        ("user", "favourite_color", "purple", "favorite_colour", "cyan"),
        ("user", "lives_in", "Lisbon", "home_city", "Porto"),
        ("user", "drinks_coffee", "yes, every morning", "coffee", "does not drink coffee"),
        ("user", "works_at", "Siemens", "employer", "Bosch"),
        ("project Atlas", "deadline", "end of June", "due_date", "end of August"),
        ("Ada", "eats_meat", "eats meat", "meat", "never eats meat"),
        ("server", "backup_time", "every night at 2", "backup_schedule", "every night at 4"),
        ("user", "meeting_day", "Tuesday", "weekly_meeting", "Wednesday"),
    )
)

SAME_TOPIC = tuple(
    Pair(*each)
    for each in (
        ("user", "favourite_color", "purple", "favourite_dish", "lentil soup"),
        ("user", "lives_in", "Lisbon", "born_in", "Braga"),
        ("user", "allergic_to", "peanuts: her throat swells", "dislikes", "olives"),
        ("user", "works_at", "Siemens in Munich", "job_title", "electrical engineer"),
        ("user", "birthday", "12 March 1984", "anniversary", "4 July"),
        ("Ada", "drinks", "green tea in the morning", "breakfast", "porridge with berries"),
        ("Ada", "plays", "the cello in a quartet", "favourite_composer", "Shostakovich"),
        ("Ada", "married_to", "Tom", "daughter", "Lena, eight years old"),
        ("dog", "name", "Bruno", "breed", "a Bernese mountain dog"),
        ("project Atlas", "deadline", "end of June", "budget", "40,000 euros"),
        ("project Atlas", "database", "PostgreSQL 16", "language", "written in Python"),
        ("user", "diet", "vegetarian", "favourite_restaurant", "the Nepalese one in Rua da Prata"),
        ("user", "gym_days", "Monday and Thursday", "gym", "the one beside the station"),
        ("server", "backup_time", "every night at 2", "backup_target", "a disk in the cellar"),
        ("user", "car", "a red Skoda", "bicycle", "a green folding bicycle"),
        ("user", "sister", "Marta", "brother", "Nuno"),
        ("user", "preferred_language", "answers in Portuguese", "speaks", "Portuguese, English and some French"),
        ("office", "wifi", "slow on the third floor", "printer", "the printer on the third floor jams"),
        ("user", "dentist", "Dr. Alves, Rua do Ouro 5", "doctor", "Dr. Costa, Rua Augusta 9"),
        ("user", "vacation", "two weeks in Norway in June", "next_trip", "a weekend in Madrid in October"),
    )
)

RULE_TWINS = (
    ("Confirm the date before booking", "Ask which date it is before you book anything"),
    ("Run the tests before every commit", "Always run all tests before committing"),
    ("Answer in Portuguese", "Reply to the user in Portuguese"),
    ("Never send an e-mail without asking first", "Ask before sending any e-mail"),
    ("Use metric units", "Give all measures in metric units"),
    ("Keep summaries under ten lines", "A summary has at most ten lines"),
    ("Check the weather before planning a trip", "Look up the weather before a trip is planned"),
    ("Write dates as day, month, year", "Dates are written day first, then month and year"),
)
RULES_OF_ONE_TOPIC = (
    ("Confirm the date before booking", "Choose the refundable fare when booking"),
    ("Run the tests before every commit", "Write the subject of a commit in the imperative"),
    ("Answer in Portuguese", "Answer in short sentences"),
    ("Never send an e-mail without asking first", "Sign e-mails with the full name"),
    ("Use metric units", "Round prices to whole euros"),
    ("Keep summaries under ten lines", "Start a summary with the decision"),
    ("Check the weather before planning a trip", "Plan two hours between a train and a flight"),
    ("Write dates as day, month, year", "Put the time zone behind every time"),
)
