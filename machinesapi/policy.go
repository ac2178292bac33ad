package machinesapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
)

// SetPolicy is the body of a request that sets a policy.
type SetPolicy struct {
	Region bourse.Region   `json:"region,omitempty"` // default: all regions without a policy of their own
	Shadow bool            `json:"shadow,omitempty"` // only compare the policy with the current ranking
	Policy json.RawMessage `json:"policy"`           // the policy's document, a JSON object
}

// Policy is a policy that an operator has set.
type Policy struct {
	Region  bourse.Region   `json:"region,omitempty"` // "": all regions without a policy of their own
	Shadow  bool            `json:"shadow,omitempty"` // the policy is only compared with the current ranking
	Name    string          `json:"name"`
	Version string          `json:"version"` // derived from the document's content
	Policy  json.RawMessage `json:"policy"`  // the policy's document
	SetBy   string          `json:"set_by,omitempty"`
	SetAt   time.Time       `json:"set_at,omitzero"`
}

// PolicyComparison summarizes how a shadow policy differs from the policy that ranks a region's
// workers. It covers the orders of one broker since the broker started or either policy was last
// replaced. An order counts if at least two workers were willing to fill it.
type PolicyComparison struct {
	Region    bourse.Region `json:"region"`
	Ranking   string        `json:"ranking"`   // name@version of the policy that ranks the workers; "" if the built-in curves do
	Policy    string        `json:"policy"`    // name@version of the shadow policy
	Orders    int           `json:"orders"`    // orders compared
	Differing int           `json:"differing"` // orders for which the shadow policy scores another worker higher
	Gain      float64       `json:"gain"`      // mean difference between the shadow policy's scores of its own and the actual first choice, over all compared orders
}

// PolicyList is the reply to a request for the policies.
type PolicyList struct {
	Policies    []Policy           `json:"policies"`
	Comparisons []PolicyComparison `json:"comparisons"` // comparisons of the broker that replies
}

// Policies lists the policies, and the broker's comparisons with shadow policies.
func (c *Client) Policies(ctx context.Context) (PolicyList, error) {
	return ask[PolicyList](ctx, c, call{method: http.MethodGet, path: path("policies")})
}

// SetPolicy sets a policy. It replaces the policy that has the same region and the same value of
// Shadow. Errors: invalid.
func (o Operator) SetPolicy(ctx context.Context, in SetPolicy) (Policy, error) {
	return ask[Policy](ctx, o.c, call{method: http.MethodPut, path: path("policies"), in: in})
}

// UnsetPolicy removes a region's policy or, if shadow is set, its shadow policy. The region ""
// stands for all regions without a policy of their own. Errors: not_found.
func (o Operator) UnsetPolicy(ctx context.Context, region bourse.Region, shadow bool) (Policy, error) {
	return ask[Policy](ctx, o.c, call{method: http.MethodDelete, path: path("policies"), query: query("region", string(region), "shadow", boolParam(shadow))})
}
