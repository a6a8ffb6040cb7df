"""Pages of the dashboard: each handler reads the query, calls one operation and renders a template."""

from butlers.dashboard.pages import (
    acts,
    audit,
    consolidation,
    entity,
    entity_list,
    episode,
    episode_list,
    fact,
    fact_list,
    live,
    login,
    merge,
    overview,
    retract,
    review,
    rule,
    rule_list,
    search,
    system,
    tenants,
    undo,
)
from butlers.dashboard.pages.route import PageRoute

ROUTES: tuple[PageRoute, ...] = (
    *overview.ROUTES,
    *search.ROUTES,
    *fact_list.ROUTES,
    *fact.ROUTES,
    *rule_list.ROUTES,
    *rule.ROUTES,
    *episode_list.ROUTES,
    *episode.ROUTES,
    *entity_list.ROUTES,
    *merge.ROUTES,
    *entity.ROUTES,
    *consolidation.ROUTES,
    *audit.ROUTES,
    *system.ROUTES,
    *review.ROUTES,
    *retract.ROUTES,
    *undo.ROUTES,
    *acts.ROUTES,
    *live.ROUTES,
    *login.ROUTES,
    *tenants.ROUTES,
)

__all__ = ["ROUTES", "PageRoute"]
