package replication

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
)

// MemberHealth is how one member's view is.
type MemberHealth struct {
	Member bourse.Member `json:"member"`
	Error  string        `json:"error,omitzero"` // why it did not answer; then the rest is empty
	State
}

// State is what a member says of its own view.
type State struct {
	Release    string       `json:"release,omitempty"`
	View       *view.Health `json:"view,omitempty"`
	Traffic    *Traffic     `json:"traffic,omitempty"`
	Synced     bool         `json:"synced"`
	Unrepaired []Unrepaired `json:"unrepaired,omitempty"`
}

// State returns how our own view is.
func (r *Replicator) State() State {
	h, t := r.view.Health(), r.Traffic()
	return State{Release: r.config.Release, View: &h, Traffic: &t, Synced: r.isSynced(), Unrepaired: r.repair.list()}
}

// Health asks every member, ourselves included, how its view is. Those that do
// not answer by the end of ctx, or within 2 s, are there with an Error. It is
// sorted by id.
func (r *Replicator) Health(ctx context.Context) []MemberHealth {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	others := r.others()
	out := make([]MemberHealth, len(others)+1)
	out[len(others)] = MemberHealth{Member: r.config.Self, State: r.State()}
	var wg sync.WaitGroup
	slots := make(chan struct{}, healthAtOnce)
	for i, m := range others {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			out[i] = r.healthOf(ctx, m)
		})
	}
	wg.Wait()
	slices.SortFunc(out, func(a, b MemberHealth) int { return cmp.Compare(a.Member.ID, b.Member.ID) })
	return out
}

const (
	healthTimeout = 2 * time.Second
	healthAtOnce  = 32
)

func (r *Replicator) healthOf(ctx context.Context, m bourse.Member) MemberHealth {
	out := MemberHealth{Member: m}
	body, err := r.client.read(ctx, m, r.client.request(http.MethodGet, pathHealth, nil), maxHealthBody)
	if err == nil {
		err = json.Unmarshal(body, &out.State)
	}
	if err != nil {
		out.State, out.Error = State{}, bourse.MessageOf(err)
	}
	return out
}

func (s *server) serveHealth(w http.ResponseWriter, req *http.Request) {
	if !s.sameCluster(w, req) {
		return
	}
	body, err := json.Marshal(s.r.State())
	if err != nil {
		http.Error(w, "the state cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = countWriter{w, &s.r.count.httpBytesOut}.Write(body) // the caller may have left
}
