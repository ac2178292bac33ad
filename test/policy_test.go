package test

import (
	"context"
	"fmt"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestEveryBrokerUsesAPolicy checks that a policy that was set through one broker is used by
// another one without a restart, that a killed broker still uses it when it returns with an empty
// view, and that no broker uses it after it was removed.
func TestEveryBrokerUsesAPolicy(t *testing.T) {
	t.Parallel()
	one := startServer(t, "b1", "serve", "broker", "--listen", "127.0.0.1:0")
	two := newServer(t, "b2", "serve", "broker", "--listen", "127.0.0.1:0", "--join", one.Addr)
	servers := []*server{two}
	for i := range 2 {
		w, _ := newWorker(t, fmt.Sprintf("w%d", i), "gru", "--join", one.Addr)
		servers = append(servers, w)
	}
	startAll(t, servers...)
	apis := []*machinesapi.Client{client(t, one), client(t, two)}
	eventually(t, waitTimeout, "all servers know each other", func() error { return servertest.Agreed(t.Context(), 4, apis...) })
	p, err := apis[0].Operator().SetPolicy(t.Context(), machinesapi.SetPolicy{Region: "gru", Policy: []byte(`{"name": "packed", "base": "best-fit"}`)})
	if err != nil {
		t.Fatal(err)
	}
	want := p.Name + "@" + p.Version
	if err := rankedBy(t.Context(), apis[0], want); err != nil {
		t.Errorf("ranking by the broker that set the policy: %v", err)
	}
	eventually(t, waitTimeout, "the other broker uses the policy", func() error { return rankedBy(t.Context(), apis[1], want) })
	if err := two.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := two.Start(); err != nil {
		t.Fatal(err)
	}
	apis[1] = client(t, two)
	eventually(t, waitTimeout, "the restarted broker uses the policy", func() error { return rankedBy(t.Context(), apis[1], want) })
	if _, err := apis[1].Operator().UnsetPolicy(t.Context(), "gru", false); err != nil {
		t.Fatal(err)
	}
	for _, api := range apis {
		eventually(t, waitTimeout, "the policy is removed", func() error { return rankedBy(t.Context(), api, "") })
	}
}

// rankedBy returns an error unless a broker ranks workers in gru by a policy.
func rankedBy(ctx context.Context, api *machinesapi.Client, policy string) error {
	d, err := api.Quote(ctx, app, sleeper("gru", "policy"))
	if err != nil {
		return err
	}
	if len(d.Rounds) == 0 || len(d.Rounds[0].Ranked) == 0 {
		return bourse.Errorf(bourse.CodeUnavailable, "no worker was ranked")
	}
	if got := d.Rounds[0].Ranked[0].Policy; got != policy {
		return bourse.Errorf(bourse.CodeUnavailable, "ranked by %q, want %q", got, policy)
	}
	return nil
}
