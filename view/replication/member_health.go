package replication

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view"
)

// State is a member's report on its own view.
type State struct {
	Release    string       `json:"release,omitempty"`
	View       view.Health  `json:"view"`
	Traffic    *Traffic     `json:"traffic,omitempty"`
	Synced     bool         `json:"synced"`
	Unrepaired []Unrepaired `json:"unrepaired,omitempty"`
}

// State returns the state of this member's view.
func (r *Replicator) State() State {
	h, t := r.view.Health(), r.Traffic()
	return State{Release: r.config.Release, View: h, Traffic: &t, Synced: r.isSynced(), Unrepaired: r.repair.list()}
}

// Health returns the state of every member's view, including this member's, sorted by ID. If a
// member does not respond within 2 s or before ctx is done, its element contains an Error.
func (r *Replicator) Health(ctx context.Context) []machinesapi.MemberHealth {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	others := r.others()
	out := make([]machinesapi.MemberHealth, len(others)+1)
	own := r.State()
	out[len(others)] = own.health(&r.config.Self)
	var wg sync.WaitGroup
	slots := make(chan struct{}, healthConcurrency)
	for i, m := range others {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			out[i] = r.healthOf(ctx, &m)
		})
	}
	wg.Wait()
	slices.SortFunc(out, func(a, b machinesapi.MemberHealth) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

const (
	healthTimeout     = 2 * time.Second
	healthConcurrency = 32
)

func (r *Replicator) healthOf(ctx context.Context, m *bourse.Member) machinesapi.MemberHealth {
	var state State
	body, err := r.client.read(ctx, *m, r.client.request(http.MethodGet, pathHealth, nil), maxHealthBody)
	if err == nil {
		err = json.Unmarshal(body, &state)
	}
	if err != nil {
		return machinesapi.MemberHealth{ID: m.ID, Role: m.Role, Region: m.Region, Error: bourse.MessageOf(err)}
	}
	return state.health(m)
}

// health converts s, the state that the member m has reported, to the API's format.
func (s *State) health(m *bourse.Member) machinesapi.MemberHealth {
	h := &s.View
	out := machinesapi.MemberHealth{
		ID: m.ID, Role: m.Role, Region: m.Region, Version: s.Release, Reachable: true, Error: h.Error, Epoch: h.Self.Epoch, Streams: len(h.Streams),
		Queue:      machinesapi.ViewQueue{Transactions: h.Queue.Length, Bytes: int64(h.Queue.Bytes), Dropped: h.Queue.Dropped},
		Quarantine: machinesapi.ViewQuarantine{Rows: h.Quarantine.Count},
	}
	for _, q := range h.Quarantine.Newest {
		out.Quarantine.Newest = append(out.Quarantine.Newest, machinesapi.QuarantinedRow{
			Site: q.Origin.Site, Epoch: q.Origin.Epoch, Seq: q.Origin.Seq, Table: q.Table, Key: q.Key, Reason: q.Reason, Since: q.Since,
		})
	}
	for _, x := range h.Streams {
		out.Heads = append(out.Heads, machinesapi.ViewHead{Site: x.Site, Epoch: x.Epoch, Seq: x.Seq, At: time.Unix(0, x.At)})
	}
	for _, t := range h.Tables {
		out.Tables = append(out.Tables, machinesapi.ViewTable{Name: t.Table, Rows: int64(t.Rows), Checksum: fmt.Sprintf("%016x", t.Checksum)})
	}
	return out
}

func (s *server) serveHealth(w http.ResponseWriter, req *http.Request) {
	if !s.sameCluster(w, req) {
		return
	}
	body, err := json.Marshal(s.r.State())
	if err != nil {
		http.Error(w, "encode the state failed", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = countWriter{w, &s.r.count.httpBytesOut}.Write(body) // the caller may have disconnected
}
