"""Resolution of names to entities: four kinds of match, and the hints that rank candidates."""
# ruff: noqa: RUF001 — names of many scripts

import pytest


def matches_of(found):
    """Return name, kind of match and score of each candidate."""
    return [(each["canonical_name"], each["name_match"], each["score"]) for each in found]


async def test_a_name_is_found_exactly_whatever_its_case(tools):
    """Scenario: Exact canonical name match (tier 1)"""
    chloe = await tools.entity("Chloe Martin", aliases=["Coco"])
    for name in ("Chloe Martin", "CHLOE MARTIN", "  chloe   martin "):
        (found,) = await tools("entity_resolve", name=name)
        assert found == {
            "entity_id": chloe,
            "canonical_name": "Chloe Martin",
            "entity_type": "person",
            "score": 100.0,
            "name_match": "exact",
            "aliases": ["Coco"],
        }


async def test_an_alias_is_found_whatever_its_case(tools):
    """Scenario: Exact alias match (tier 2)"""
    await tools.entity("Chloe Martin", aliases=["Coco", "CM"])
    for name in ("coco", "COCO", "cm"):
        assert matches_of(await tools("entity_resolve", name=name)) == [("Chloe Martin", "alias", 80.0)]


async def test_the_beginning_and_the_inside_of_a_name_or_alias_are_found(tools):
    """Scenario: Prefix/substring match (tier 3)"""
    await tools.entity("Chloe Martin", aliases=["Coco Chanel"])
    for name in ("chl", "c", "ch", "Chloe M", "loe mar", "tin", "n", "coco", "chan", "nel", "o c"):
        assert matches_of(await tools("entity_resolve", name=name)) == [("Chloe Martin", "prefix", 50.0)], name
    assert await tools("entity_resolve", name="martincoco") == [], "where one name ends the other does not begin"
    assert await tools("entity_resolve", name="chle") == []


async def test_names_spelled_alike_are_found_when_they_are_asked_for(tools):
    """Scenario: Fuzzy match (tier 4, opt-in)"""
    await tools.entity("Katherine Johnson", aliases=["Kathy"])
    await tools.entity("Chloe Martin")
    for name in ("Catherine Jonson", "Kathrine Johnsen", "Cathy"):
        assert await tools("entity_resolve", name=name) == []
        assert await tools("entity_resolve", name=name, enable_fuzzy=False) == []
        assert matches_of(await tools("entity_resolve", name=name, enable_fuzzy=True)) == [
            ("Katherine Johnson", "fuzzy", 20.0)
        ]
    assert matches_of(await tools("entity_resolve", name="kathy", enable_fuzzy=True))[0][1:] == ("alias", 80.0)
    await tools.entity("Jo")
    assert await tools("entity_resolve", name="Ja", enable_fuzzy=True) == [], "two characters are like too many"
    assert await tools("entity_resolve", name="Zzyzx", enable_fuzzy=True) == []


async def test_each_is_there_once_with_its_best_match_and_the_best_come_first(tools):
    """Scenario: Resolution ordering"""
    await tools.entity("Ada", aliases=["ada", "Ada L"])
    await tools.entity("Zoe Adams", aliases=["Ada"])
    await tools.entity("Adam")
    await tools.entity("Bada")
    await tools.entity("Adda")
    await tools.entity("Ada", "place")
    assert matches_of(await tools("entity_resolve", name="ada", enable_fuzzy=True)) == [
        ("Ada", "exact", 100.0),
        ("Ada", "exact", 100.0),
        ("Zoe Adams", "alias", 80.0),
        ("Adam", "prefix", 50.0),
        ("Bada", "prefix", 50.0),
        ("Adda", "fuzzy", 20.0),
    ]
    both = await tools("entity_resolve", name="ada")
    assert [each["entity_id"] for each in both[:2]] == sorted(each["entity_id"] for each in both[:2])
    places = await tools("entity_resolve", name="ada", entity_type=" Place ", enable_fuzzy=True)
    assert [(each["canonical_name"], each["entity_type"]) for each in places] == [("Ada", "place")]


async def test_a_name_nobody_has_is_an_empty_list_and_nobody_is_made(tools, archive):
    """Scenario: No candidates found"""
    await tools.entity("Ada")
    assert await tools("entity_resolve", name="Grace", enable_fuzzy=True) == []
    assert await archive.count("entities", tools.tenant) == 1


@pytest.mark.parametrize("name", ["", " ", "\n\t", "\x00", " \x00 "])
async def test_a_blank_name_is_refused(tools, name):
    await tools.entity("Ada")
    message = await tools.refusal("entity_resolve", name=name)
    assert message.startswith("invalid_input: name")


async def test_wildcards_are_letters(tools):
    await tools.entity("Ada")
    for name in ("%", "_", "\\", "A%", "_da", "%a%", "\\%"):
        assert await tools("entity_resolve", name=name, enable_fuzzy=True) == [], name
    await tools.entity("100% Rye", "organization")
    await tools.entity("snake_case", "other")
    await tools.entity("C:\\temp", "place")
    for name, expected in (("%", "100% Rye"), ("0%", "100% Rye"), ("_", "snake_case"), ("\\", "C:\\temp")):
        assert matches_of(await tools("entity_resolve", name=name)) == [(expected, "prefix", 50.0)]


async def test_a_merged_entity_is_out_of_sight_under_all_its_names(tools):
    gone = await tools.entity("Chloe Martin", aliases=["Coco"])
    kept = await tools.entity("C. Martin")
    await tools("entity_merge", source_entity_id=gone, target_entity_id=kept)
    for name in ("Chloe Martin", "coco", "chloe", "Chloee Martinn", gone, gone[:8]):
        found = await tools("entity_resolve", name=name, enable_fuzzy=True)
        assert gone not in [each["entity_id"] for each in found]
    assert matches_of(await tools("entity_resolve", name="chloe martin")) == [("C. Martin", "alias", 80.0)]
    assert await tools.entity("Chloe Martin"), "its name is free again"


async def test_accents_and_widths_do_not_keep_a_name_from_being_found(tools):
    await tools.entity("Chloé Lefèvre", aliases=["Zoë"])
    await tools.entity("Ｆｕｊｉ ﬁlm", "organization")
    assert matches_of(await tools("entity_resolve", name="chloe lefevre")) == [("Chloé Lefèvre", "exact", 100.0)]
    assert matches_of(await tools("entity_resolve", name="CHLOE\u0301 LEFE\u0300VRE")) == [
        ("Chloé Lefèvre", "exact", 100.0)
    ]
    assert matches_of(await tools("entity_resolve", name="zoe")) == [("Chloé Lefèvre", "alias", 80.0)]
    assert matches_of(await tools("entity_resolve", name="LEFEV")) == [("Chloé Lefèvre", "prefix", 50.0)]
    assert matches_of(await tools("entity_resolve", name="fuji film")) == [("Ｆｕｊｉ ﬁlm", "exact", 100.0)]


async def test_who_is_called_as_it_was_written_comes_before_who_differs_in_accents(tools):
    await tools.entity("Emile")
    assert matches_of(await tools("entity_resolve", name="Émile")) == [("Emile", "exact", 100.0)]
    await tools.entity("Émile")
    assert matches_of(await tools("entity_resolve", name="émile")) == [
        ("Émile", "exact", 100.0),
        ("Emile", "prefix", 50.0),
    ]
    assert matches_of(await tools("entity_resolve", name="emile")) == [
        ("Emile", "exact", 100.0),
        ("Émile", "prefix", 50.0),
    ]


async def test_what_the_facts_say_tells_two_of_one_name_apart(tools):
    """Scenario: Graph neighborhood scoring with context_hints"""
    martin = await tools.entity("Chloe Martin", aliases=["Chloe"])
    smith = await tools.entity("Chloe Smith", aliases=["Chloe"])
    await tools.fact("plays tennis", subject="Chloe", predicate="hobby", entity_id=smith)
    await tools.fact("paints", subject="Chloe", predicate="hobby", entity_id=martin)
    plain = await tools("entity_resolve", name="Chloe")
    assert matches_of(plain) == [("Chloe Martin", "alias", 80.0), ("Chloe Smith", "alias", 80.0)]
    # Facts about Smith: hobby, play, tennis. Hint: tennis, lesson. One of four words is shared.
    found = await tools("entity_resolve", name="Chloe", context_hints={"topic": "tennis lesson"})
    assert matches_of(found) == [("Chloe Smith", "alias", 85.0), ("Chloe Martin", "alias", 80.0)]
    found = await tools("entity_resolve", name="Chloe", context_hints={"mentioned_with": ["painting", "hobby"]})
    assert matches_of(found) == [("Chloe Martin", "alias", 100.0), ("Chloe Smith", "alias", 85.0)]
    found = await tools(
        "entity_resolve", name="Chloe", context_hints='{"topic": "Chloe plays", "mentioned_with": "tennis hobby"}'
    )
    assert matches_of(found)[0] == ("Chloe Smith", "alias", 100.0), "the name itself tells nothing"


async def test_only_what_is_known_now_speaks_for_a_candidate(tools):
    chloe = await tools.entity("Chloe")
    fact = await tools.fact("tennis", subject="Chloe", predicate="hobby", entity_id=chloe)
    hints = {"topic": "tennis hobby"}
    assert matches_of(await tools("entity_resolve", name="Chloe", context_hints=hints))[0][2] == 120.0
    await tools("memory_forget", type="fact", id=fact)
    assert matches_of(await tools("entity_resolve", name="Chloe", context_hints=hints))[0][2] == 100.0


async def test_five_hundred_facts_are_looked_at_and_the_latest_of_them(tools, archive):
    chloe = await tools.entity("Chloe")
    first = await tools.fact("tennis", subject="Chloe", predicate="oldest", entity_id=chloe)
    await archive.age("fact", first, 9)
    await archive.connection.execute(
        "insert into facts (tenant_id, subject, predicate, content, entity_id, search_vector)"
        " select $1, 'Chloe', 'p' || n, 'chess', $2, to_tsvector('english', 'chess')"
        " from generate_series(1, 500) n",
        tools.tenant,
        chloe,
    )
    hints = {"topic": "tennis"}
    assert matches_of(await tools("entity_resolve", name="Chloe", context_hints=hints))[0][2] == 100.0
    hints = {"topic": "chess"}
    assert matches_of(await tools("entity_resolve", name="Chloe", context_hints=hints))[0][2] == 120.0


async def test_points_of_a_domain_are_added_to_whom_they_name(tools):
    """Scenario: Domain scores from context_hints"""
    ada, zoe = await tools.entity("Ada", aliases=["A"]), await tools.entity("Zoe", aliases=["A"])
    hints = {"domain_scores": {zoe.upper(): 7.123456, ada: -1, "00000000-0000-4000-8000-000000000000": 99}}
    found = await tools("entity_resolve", name="A", context_hints=hints)
    assert matches_of(found) == [("Zoe", "alias", 87.1235), ("Ada", "alias", 79.0)]


@pytest.mark.parametrize(
    "hints",
    [
        {"topik": "tennis"},
        {"domain_scores": {"00000000-0000-4000-8000-000000000000": "many"}},
        {"domain_scores": {"00000000-0000-4000-8000-000000000000": 1e300}},
        {"domain_scores": [1]},
        {"mentioned_with": [1]},
        "tennis",
    ],
    ids=str,
)
async def test_hints_that_are_none_are_refused(tools, hints):
    await tools.entity("Ada")
    message = await tools.refusal("entity_resolve", name="Ada", context_hints=hints)
    assert message.startswith("invalid_input: ")


async def test_blank_hints_and_options_are_as_if_left_out(tools):
    await tools.entity("Ada")
    for blank in (None, "", {}, {"topic": "", "mentioned_with": "", "domain_scores": ""}, {"topic": None}):
        found = await tools("entity_resolve", name="Ada", context_hints=blank, entity_type="", enable_fuzzy="")
        assert matches_of(found) == [("Ada", "exact", 100.0)]
    assert matches_of(await tools("entity_resolve", name="Ada", context_hints={"topic": "the of %_\\ ' \x00"})) == [
        ("Ada", "exact", 100.0)
    ]


async def test_of_very_many_the_exact_ones_are_never_lost(tools, archive):
    await archive.connection.execute(
        "insert into entities (tenant_id, canonical_name, entity_type, aliases)"
        " select $1, 'Ada ' || n, 'person', array['Ada L'] from generate_series(1, 700) n",
        tools.tenant,
    )
    ada = await tools.entity("Ada")
    zoe = await tools.entity("Zoe", aliases=["ada"])
    found = await tools("entity_resolve", name="ada", enable_fuzzy=True)
    assert [each["entity_id"] for each in found[:2]] == [ada, zoe]
    assert 50 <= len(found) <= 152
    assert {each["score"] for each in found[2:]} <= {50.0, 20.0}
    again = await tools("entity_resolve", name="ada", enable_fuzzy=True)
    assert again == found
    prefixes = [each["canonical_name"] for each in found if each["name_match"] == "prefix"]
    assert prefixes == sorted(prefixes)


async def test_an_older_entity_is_found_by_the_name_it_was_given_in_an_update(tools):
    ada = await tools.entity("Ada")
    await tools("entity_update", entity_id=ada, aliases=["Countess of Lovelace"])
    assert matches_of(await tools("entity_resolve", name="countess of lovelace")) == [("Ada", "alias", 80.0)]
    assert matches_of(await tools("entity_resolve", name="lovelace")) == [("Ada", "prefix", 50.0)]
