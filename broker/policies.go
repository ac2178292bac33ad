package broker

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/market"
	"github.com/bourse-dev/bourse/view/inventory"
)

// Policies caches the view's policies for an exchange, in parsed form.
type Policies struct {
	view    lookup.PolicyView
	log     *slog.Logger
	reading sync.Mutex // serializes reads, so that an older result does not replace a newer one
	current atomic.Pointer[market.Policies]
}

// NewPolicies returns a Policies that is empty until Reload or Run is called.
func NewPolicies(view lookup.PolicyView, log *slog.Logger) *Policies {
	p := &Policies{view: view, log: log}
	p.current.Store(market.NewPolicies(nil, nil))
	return p
}

// Current returns the policies as of the last read. It does not block.
func (p *Policies) Current() *market.Policies { return p.current.Load() }

// Reload reads the policies from the view. It ignores invalid policies, which another release of the program may have
// written.
func (p *Policies) Reload(ctx context.Context) error {
	p.reading.Lock()
	defer p.reading.Unlock()
	list, err := p.view.Policies(ctx)
	if err != nil {
		return err
	}
	rank, shadow := map[bourse.Region]*market.Policy{}, map[bourse.Region]*market.Policy{}
	for i := range list {
		set := &list[i]
		policy, err := market.ParsePolicy(set.Text)
		if err != nil {
			p.log.Error("policy in the view is invalid", "region", set.Region, "shadow", set.Shadow, "err", err)
			continue
		}
		if set.Shadow {
			shadow[set.Region] = policy
		} else {
			rank[set.Region] = policy
		}
	}
	p.current.Store(market.NewPolicies(rank, shadow))
	return nil
}

// reloadAfter is the delay before a failed read is retried.
const reloadAfter = time.Second

// Run reads the policies immediately, and again whenever changed receives a value, until ctx is done. It returns nil.
func (p *Policies) Run(ctx context.Context, changed <-chan struct{}) error {
	for {
		var again <-chan time.Time
		if err := p.Reload(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("read policies failed", "err", err)
			again = time.After(reloadAfter)
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return nil
		}
	}
}

// policyHandler serves /v1/policies, where operators set the policies that rank workers.
type policyHandler struct{ *Config }

func (h *policyHandler) routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.On("GET /v1/policies", endpoint.Cluster, h.list).Writes(machinesapi.PolicyList{}),
		endpoint.On("PUT /v1/policies", endpoint.Cluster, h.set).Reads(machinesapi.SetPolicy{}).Writes(machinesapi.Policy{}),
		endpoint.On("DELETE /v1/policies", endpoint.Cluster, h.unset).Writes(machinesapi.Policy{}).Asks("region", "shadow"),
	}
}

func (h *policyHandler) list(w http.ResponseWriter, r *endpoint.Request) error {
	list, err := h.Policies.view.Policies(r.Context())
	if err != nil {
		return err
	}
	out := machinesapi.PolicyList{Policies: []machinesapi.Policy{}, Comparisons: []machinesapi.PolicyComparison{}}
	for i := range list {
		out.Policies = append(out.Policies, showPolicy(&list[i]))
	}
	for _, c := range h.Exchange.Comparisons() {
		out.Comparisons = append(out.Comparisons, machinesapi.PolicyComparison(c))
	}
	return endpoint.WriteJSON(w, http.StatusOK, out)
}

// set stores a policy in the view. This broker uses the policy before it replies; other brokers use it as soon as
// they have received it.
func (h *policyHandler) set(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.SetPolicy
	if err := endpoint.Decode(w, r, false, &in); err != nil {
		return err
	}
	policy, err := market.ParsePolicy(in.Policy)
	if err != nil {
		return err
	}
	if in.Region != "" {
		choice, err := choices(h.Directory, string(in.Region))
		if err != nil {
			return err
		}
		if len(choice) != 1 || !slices.Equal(choice[0], bourse.Choice{in.Region}) {
			return bourse.Errorf(bourse.CodeInvalid, "region %s: use one region", bourse.Quoted(string(in.Region)))
		}
	}
	set := inventory.Policy{Region: in.Region, Shadow: in.Shadow, Text: policy.Text, SetBy: r.Who.Name, SetAt: h.Now()}
	r.Note(slog.String("policy", policy.String()), slog.String("region", string(in.Region)), slog.Bool("shadow", in.Shadow))
	if err := h.Policies.view.PutPolicy(r.Context(), &set); err != nil {
		return err
	}
	h.reload(r.Context())
	return endpoint.WriteJSON(w, http.StatusOK, showPolicy(&set))
}

func (h *policyHandler) unset(w http.ResponseWriter, r *endpoint.Request) error {
	shadow, err := endpoint.QueryBool(r, "shadow")
	if err != nil {
		return err
	}
	region := bourse.Region(r.URL.Query().Get("region"))
	list, err := h.Policies.view.Policies(r.Context())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(p inventory.Policy) bool { return p.Region == region && p.Shadow == shadow })
	if i < 0 {
		return bourse.Errorf(bourse.CodeNotFound, "no %s is set for %s", useOf(shadow), regionsOf(region))
	}
	r.Note(slog.String("region", string(region)), slog.Bool("shadow", shadow))
	if err := h.Policies.view.DropPolicy(r.Context(), &list[i]); err != nil {
		return err
	}
	h.reload(r.Context())
	return endpoint.WriteJSON(w, http.StatusOK, showPolicy(&list[i]))
}

// reload applies a change on this broker immediately. If the view cannot be read, the change takes effect the next
// time that Run reads the view.
func (h *policyHandler) reload(ctx context.Context) {
	if err := h.Policies.Reload(ctx); err != nil {
		h.Log.Warn("read policies failed", "err", err)
	}
}

func useOf(shadow bool) string {
	if shadow {
		return "shadow policy"
	}
	return "policy"
}

func regionsOf(r bourse.Region) string {
	if r == "" {
		return "all regions"
	}
	return "region " + bourse.Quoted(string(r))
}

// showPolicy converts a policy to the API's type. If the policy is invalid, the result has no name and no version.
func showPolicy(p *inventory.Policy) machinesapi.Policy {
	out := machinesapi.Policy{Region: p.Region, Shadow: p.Shadow, Policy: p.Text, SetBy: p.SetBy, SetAt: p.SetAt.UTC()}
	if !json.Valid(p.Text) {
		out.Policy = json.RawMessage("{}")
	}
	if policy, err := market.ParsePolicy(p.Text); err == nil {
		out.Name, out.Version = policy.Name, policy.Version
	}
	return out
}
