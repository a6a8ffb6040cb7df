-- Name normalisation on a server without the extension unaccent.

create function normalized_name(name text) returns text
language sql immutable strict parallel safe
return left(replace(coalesce(nullif(btrim(lower(
    -- Characters that expand to a phrase can make a name longer than an index entry: such a name stays as it is.
    case when char_length(normalize(name, nfkc)) > 512 then name else normalize(name, nfkc) end
)), ''), lower(name)), chr(31), ' '), 512);
