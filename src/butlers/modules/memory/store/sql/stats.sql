-- name: episodes(tenant_id, butlers)^
-- Episodes by state.
select count(*) as total,
       count(*) filter (where consolidation_status = 'pending' and (expires_at is null or expires_at > now())) as unconsolidated,
       count(*) filter (where consolidation_status = 'consolidated') as consolidated,
       count(*) filter (where consolidation_status = 'failed') as failed,
       count(*) filter (where consolidation_status = 'dead_letter') as dead_letter,
       count(*) filter (where expires_at <= now()) as expired,
       count(*) filter (where expires_at <= now() and consolidation_status <> 'consolidated') as expired_unread,
       extract(epoch from now() - min(created_at) filter (
           where consolidation_status in ('pending', 'failed') and (expires_at is null or expires_at > now())
       ))::double precision / 3600 as backlog_age_hours
  from episodes
 where tenant_id = :tenant_id
   and (:butlers::text[] is null or butler = any (:butlers));

-- name: facts(tenant_id, scopes)^
-- Facts by state, and live facts by confidence.
with judged as (
    select validity, metadata ->> 'status' = 'fading' as fading,
           effective_confidence(confidence, decay_rate, last_confirmed_at, now()) as confidence
      from facts
     where tenant_id = :tenant_id
       and (:scopes::text[] is null or scope = any (:scopes))
)
select count(*) as total,
       count(*) filter (where validity = 'active' and fading is not true) as active,
       count(*) filter (where validity = 'active' and fading) as fading,
       count(*) filter (where validity = 'superseded') as superseded,
       count(*) filter (where validity = 'expired') as expired,
       count(*) filter (where validity = 'retracted') as retracted,
       avg(confidence) filter (where validity = 'active') as average_confidence,
       count(*) filter (where validity = 'active' and confidence < 0.2) as below_20,
       count(*) filter (where validity = 'active' and confidence >= 0.2 and confidence < 0.4) as from_20_to_40,
       count(*) filter (where validity = 'active' and confidence >= 0.4 and confidence < 0.6) as from_40_to_60,
       count(*) filter (where validity = 'active' and confidence >= 0.6 and confidence < 0.8) as from_60_to_80,
       count(*) filter (where validity = 'active' and confidence >= 0.8) as from_80
  from judged;

-- name: rules(tenant_id, scopes)^
-- Rules by maturity, and their effectiveness; forgotten rules count as forgotten only.
with judged as (
    select maturity, applied_count, success_count, harmful_count, effectiveness_score,
           coalesce((metadata -> 'forgotten')::boolean, false) as forgotten,
           metadata ->> 'status' = 'fading' as fading,
           coalesce((metadata -> 'needs_inversion')::boolean, false) as awaits_inversion
      from rules
     where tenant_id = :tenant_id
       and (:scopes::text[] is null or scope = any (:scopes))
)
select count(*) as total,
       count(*) filter (where maturity = 'candidate' and not forgotten) as candidate,
       count(*) filter (where maturity = 'established' and not forgotten) as established,
       count(*) filter (where maturity = 'proven' and not forgotten) as proven,
       count(*) filter (where maturity = 'anti_pattern' and not forgotten) as anti_pattern,
       count(*) filter (where forgotten) as forgotten,
       count(*) filter (where fading and not forgotten) as fading,
       count(*) filter (where awaits_inversion and not forgotten) as needs_inversion,
       coalesce(sum(applied_count) filter (where not forgotten), 0) as applied,
       coalesce(sum(success_count) filter (where not forgotten), 0) as successes,
       coalesce(sum(harmful_count) filter (where not forgotten), 0) as harms,
       avg(effectiveness_score) filter (where applied_count > 0 and not forgotten) as average_effectiveness
  from judged;
