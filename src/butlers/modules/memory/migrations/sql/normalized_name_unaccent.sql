-- Name normalisation on a server with the extension unaccent.
-- unaccent() is declared stable because its rules could change; a SQL body may call it in an immutable function.

create function normalized_name(name text) returns text
language sql immutable strict parallel safe
return left(replace(coalesce(nullif(btrim(lower(
    -- Characters that expand to a phrase can make a name longer than an index entry: such a name stays as it is.
    case when char_length(normalize(name, nfkc)) > 512 then name
         else public.unaccent('public.unaccent', normalize(name, nfkc)) end
)), ''), lower(name)), chr(31), ' '), 512);
