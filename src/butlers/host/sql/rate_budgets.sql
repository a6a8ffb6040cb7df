-- name: lease_calls(butler, wanted, rate, burst)$
-- Take calls from the budget that all processes of a butler share; returns how many were left to take.
select lease_calls(:butler, :wanted, :rate, :burst);
