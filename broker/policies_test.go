package broker_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/market"
	"github.com/bourse-dev/bourse/view/inventory"
)

const (
	packed = `{"name":"packed","base":"best-fit"}`
	spread = `{"name":"spread","base":"spread"}`
)

// TestPolicies sets, lists, replaces and removes policies.
func TestPolicies(t *testing.T) {
	s := start(t)
	c := s.client(t)
	set := func(region bourse.Region, shadow bool, text string) machinesapi.Policy {
		t.Helper()
		p, err := c.Operator().SetPolicy(t.Context(), machinesapi.SetPolicy{Region: region, Shadow: shadow, Policy: []byte(text)})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := set("gru", false, spread)
	set("", false, spread)
	set("gru", true, packed)
	second := set("gru", false, packed)
	if first.Version == second.Version || first.Name != "spread" || second.Name != "packed" {
		t.Errorf("set %+v, then %+v", first, second)
	}
	uses := func() (out []string) {
		list, err := c.Policies(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list.Policies {
			use := string(p.Region) + " " + p.Name
			if p.Shadow {
				use += " shadow"
			}
			out = append(out, use)
		}
		if len(list.Comparisons) != 1 || list.Comparisons[0].Differing != 1 {
			t.Errorf("comparisons: %+v", list.Comparisons)
		}
		return out
	}
	if diff := cmp.Diff([]string{" spread", "gru packed shadow", "gru packed"}, uses()); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
	if p, err := c.Operator().UnsetPolicy(t.Context(), "gru", true); err != nil || !p.Shadow || p.Name != "packed" {
		t.Errorf("unset: %+v, %v", p, err)
	}
	if _, err := c.Operator().UnsetPolicy(t.Context(), "gru", true); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("unset again: %v", err)
	}
	if diff := cmp.Diff([]string{" spread", "gru packed"}, uses()); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
}

// TestInvalidPolicies checks that a policy that would have no effect, or not the intended one, is
// rejected.
func TestInvalidPolicies(t *testing.T) {
	s := start(t)
	for body, want := range map[string]string{
		`{}`: "policy",
		`{"policy":{"name":"p","curves":{"color":{}}}}`:                  "color",
		`{"policy":{"name":"p","base":"tetris"}}`:                        "best-fit",
		`{"policy":` + packed + `,"region":"nowhere"}`:                   "nowhere",
		`{"policy":` + packed + `,"region":"any"}`:                       "use one region",
		`{"policy":` + packed + `,"region":"gru,mad"}`:                   "use one region",
		`{"policy":{"name":"` + strings.Repeat("p", 1<<17) + `"}}`:       "at most",
		`{"policy":{"name":"p","curves":{"image":{"weight":-1}}}}`:       "weight -1",
		`{"policy":{"name":"p","curves":{"resources":{"a":{"w":"x"}}}}}`: "unknown field",
	} {
		rec := s.call(t, "PUT", "/v1/policies", body)
		if rec.Code != http.StatusBadRequest || !strings.Contains(rec.Body.String(), want) || rec.Body.Len() > 1024 {
			t.Errorf("%.80s: %d %.1024s, want 400 with %q", body, rec.Code, rec.Body, want)
		}
	}
	if len(s.view.policies) > 0 {
		t.Errorf("stored %+v", s.view.policies)
	}
}

// TestOnlyOperatorsSetPolicies checks that a tenant can neither change nor read policies.
func TestOnlyOperatorsSetPolicies(t *testing.T) {
	s := start(t, func(c *broker.Config) { c.Tokens = tokenMap{"one": {Name: "acme", Org: "acme"}, "all": {Name: "*"}} })
	for token, want := range map[string]int{"": http.StatusUnauthorized, "one": http.StatusForbidden, "all": http.StatusOK} {
		for _, call := range [][3]string{{"PUT", "/v1/policies", `{"policy":` + packed + `}`}, {"GET", "/v1/policies", ""}, {"DELETE", "/v1/policies", ""}} {
			if rec := s.call(t, call[0], call[1], call[2], "Authorization", "Bearer "+token); rec.Code != want {
				t.Errorf("token %q: %s: %d, want %d: %s", token, call[0], rec.Code, want, rec.Body)
			}
		}
	}
}

// TestPoliciesFollowTheView checks that a broker uses a policy that another broker has set, ignores an
// invalid one, and keeps its policies while the view cannot be read.
func TestPoliciesFollowTheView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newFakeView(three())
		p := policiesOf(v)
		ctx, stop := context.WithCancel(t.Context())
		changed, ended := make(chan struct{}, 1), make(chan error, 1)
		go func() { ended <- p.Run(ctx, changed) }()
		synctest.Wait()
		change := func(do func(*fakeView)) *market.Policies {
			v.set(do)
			changed <- struct{}{}
			synctest.Wait()
			return p.Current()
		}
		policy, err := market.ParsePolicy([]byte(packed))
		if err != nil {
			t.Fatal(err)
		}
		same := func(got *market.Policies, rank map[bourse.Region]*market.Policy) {
			t.Helper()
			if diff := cmp.Diff(market.NewPolicies(rank, map[bourse.Region]*market.Policy{}), got, cmp.AllowUnexported(market.Policies{})); diff != "" {
				t.Errorf("policies (-want +got):\n%s", diff)
			}
		}
		both := []inventory.Policy{{Region: "gru", Text: []byte(packed)}, {Region: "mad", Text: []byte(`{"name":"from another release","base":"?"}`)}}
		same(change(func(v *fakeView) { v.policies = both }), map[bourse.Region]*market.Policy{"gru": policy})
		same(change(func(v *fakeView) { v.err, v.policies = context.DeadlineExceeded, nil }), map[bourse.Region]*market.Policy{"gru": policy})
		v.set(func(v *fakeView) { v.err = nil })
		time.Sleep(2 * time.Second) // virtual; the failed read is repeated
		same(p.Current(), map[bourse.Region]*market.Policy{})
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
