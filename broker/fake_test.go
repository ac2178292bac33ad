package broker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/market"
)

// cluster is an in-memory exchange, directory and fabric with a set of workers.
type cluster struct {
	members []bourse.Member
	workers map[bourse.WorkerID]*worker

	mu        sync.Mutex
	orders    []bourse.Order // orders that were placed, in order
	decisions map[bourse.OrderID]bourse.Decision
	claiming  map[bourse.OrderID]bourse.Member
	placeErr  error // if set, Place returns it instead of placing the order
	absent    []bourse.Absence
	new       bool // the broker does not know its cluster yet
}

// All implements lookup.Directory.
func (c *cluster) All() ([]bourse.Member, []bourse.Absence) {
	here := c.Workers()
	c.mu.Lock()
	defer c.mu.Unlock()
	return here, c.absent
}

// Knows implements lookup.Directory.
func (c *cluster) Knows() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.new
}

func newCluster(members ...bourse.Member) *cluster {
	c := &cluster{workers: map[bourse.WorkerID]*worker{}, decisions: map[bourse.OrderID]bourse.Decision{}}
	for _, m := range members {
		c.members = append(c.members, m)
		c.workers[m.ID] = newWorker(m)
	}
	return c
}

// three returns a cluster of three workers in two regions.
func three() *cluster {
	return newCluster(
		bourse.Member{ID: "w1", Role: bourse.RoleWorker, Region: "gru", Address: "127.0.0.1:1", Tag: 0xaaaaaa},
		bourse.Member{ID: "w2", Role: bourse.RoleWorker, Region: "gru", Address: "127.0.0.1:2", Tag: 0xbbbbbb},
		bourse.Member{ID: "w3", Role: bourse.RoleWorker, Region: "mad", Address: "127.0.0.1:3", Tag: 0xcccccc},
	)
}

// setup is a broker with its cluster.
type setup struct {
	*cluster
	view    *fakeView // nil: the view is empty
	broker  *broker.Broker
	handler http.Handler
	log     *strings.Builder
}

// start starts a broker whose view contains everything immediately.
func start(t testing.TB, change ...func(*broker.Config)) *setup {
	t.Helper()
	c := three()
	view := newFakeView(c)
	s := startOn(t, c, append([]func(*broker.Config){func(config *broker.Config) {
		config.View, config.Releases, config.Policies = view, view, policiesOf(view)
	}}, change...)...)
	s.view = view
	return s
}

// startBlind starts a broker whose view is still empty.
func startBlind(t testing.TB) *setup {
	t.Helper()
	return startOn(t, three())
}

func policiesOf(v *fakeView) *broker.Policies {
	return broker.NewPolicies(v, slog.New(slog.DiscardHandler))
}

func startOn(t testing.TB, c *cluster, change ...func(*broker.Config)) *setup {
	t.Helper()
	log := &strings.Builder{}
	blind := newFakeView(c)
	blind.frozen, blind.unsynced = true, true
	config := broker.Config{
		Exchange: c, Directory: c, Workers: c, View: blind, Releases: blind, Policies: policiesOf(blind), Secrets: newFakeSecrets(), WireGuard: &fakeLaptops{}, Region: "gru", Version: "test", Timeout: time.Second,
		Log: slog.New(slog.NewJSONHandler(&lockedWriter{w: log}, nil)),
	}
	for _, f := range change {
		f(&config)
	}
	b := broker.New(config)
	return &setup{cluster: c, broker: b, handler: describedReplies(t, b.Handler()), log: log}
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// client serves the broker on loopback and returns a client.
func (s *setup) client(t testing.TB) *machinesapi.Client {
	t.Helper()
	server := httptest.NewServer(s.handler)
	t.Cleanup(server.Close)
	return &machinesapi.Client{BaseURL: server.URL, HTTP: server.Client(), Retries: -1}
}

// call sends a request to the broker's handler and returns the reply.
func (s *setup) call(t testing.TB, method, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	s.handler.ServeHTTP(rec, req)
	saysItOnce(t, method+" "+path, rec)
	return rec
}

const hostConfig = `{"image":"host","init":{"exec":["sleep","60"]}}`

// machine creates a machine of app "shop" on worker w in the given state.
func (s *setup) machine(t testing.TB, w bourse.WorkerID, name string, state bourse.State) bourse.Machine {
	t.Helper()
	app := s.app(t, "shop", "personal")
	return s.workers[w].add(bourse.Order{
		ID: bourse.NewOrderID().In(app.ID), App: app, Name: name,
		Config: bourse.Config{Image: "host", Init: bourse.Init{Exec: []string{"sleep", "60"}}},
	}, state)
}

// app creates an app that every worker knows.
func (s *setup) app(t testing.TB, name bourse.AppName, org string) bourse.App {
	t.Helper()
	app := bourse.App{Name: name, ID: "01J0000000000000000000" + fmt.Sprintf("%04d", len(name)), Org: org, CreatedAt: time.Now().UTC()}
	for _, w := range s.workers {
		w.mu.Lock()
		w.apps[name] = app
		w.mu.Unlock()
	}
	if s.view != nil {
		s.view.put(app)
	}
	return app
}

// Workers and the following methods implement lookup.Directory.
func (c *cluster) Workers() []bourse.Member { return slices.Clone(c.members) }

func (c *cluster) ByTag(tag bourse.WorkerTag) (bourse.Member, bool) {
	for _, m := range c.members {
		if m.Tag == tag {
			return m, true
		}
	}
	return bourse.Member{}, false
}

func (c *cluster) Regions() []bourse.Region {
	var out []bourse.Region
	for _, m := range c.members {
		if !slices.Contains(out, m.Region) {
			out = append(out, m.Region)
		}
	}
	slices.Sort(out)
	return out
}

// Place fills the order on the first worker with capacity in its regions.
func (c *cluster) Place(_ context.Context, order bourse.Order) (bourse.Fill, bourse.Decision, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.orders = append(c.orders, order)
	d := bourse.Decision{
		Order: order.ID, ChosenID: order.ChosenID, App: order.App.Name, AppID: order.App.ID, Regions: order.Regions, At: time.Now().UTC(), Outcome: bourse.OutcomeFilled,
		Times: bourse.Times{Quote: 200 * time.Microsecond, Rank: time.Microsecond, Claim: time.Millisecond, Start: 2 * time.Millisecond},
	}
	if c.placeErr != nil {
		return bourse.Fill{}, d, c.placeErr
	}
	for _, choice := range order.Regions {
		round := bourse.Round{Regions: choice}
		for _, m := range c.members {
			if !slices.Contains(choice, m.Region) {
				continue
			}
			w := c.workers[m.ID]
			if old, ok := w.filled(order.ID); ok {
				return bourse.Fill{Machine: old, Repeated: true}, d, nil
			}
			if w.plain && order.Volume != nil && order.Volume.Encrypted {
				round.Refusals = append(round.Refusals, bourse.Refusal{
					Worker: m.ID, Region: m.Region, Reason: bourse.RefusedUnknown, Resource: bourse.LabelEncrypted, Detail: "the worker cannot encrypt volumes",
				})
				continue
			}
			if w.full {
				round.Refusals = append(round.Refusals, bourse.Refusal{
					Worker: m.ID, Region: m.Region, Reason: bourse.RefusedResource, Resource: "memory", Wanted: 256, Free: 8, Detail: "memory: 8 MiB free",
				})
				continue
			}
			if order.Task != nil {
				return bourse.Fill{Task: c.work(order, m)}, d, nil
			}
			if order.Volume != nil {
				made := w.addVolume(order)
				d.Worker, d.Volume = m.ID, made.ID
				return bourse.Fill{Volume: &made}, d, nil
			}
			if pin := order.Pinned(); pin != 0 {
				if pin != m.Tag {
					continue
				}
				if v := w.volumes[order.Config.Mounts[0].Volume]; v == nil || v.Machine != "" {
					round.Refusals = append(round.Refusals, bourse.Refusal{Worker: m.ID, Reason: bourse.RefusedVolume, Detail: "volume already claimed by machine 1"})
					continue
				}
			}
			state := bourse.StateStarted
			if order.SkipLaunch {
				state = bourse.StateCreated
			}
			made := w.add(order, state)
			d.Worker, d.Machine = m.ID, made.ID
			w.mu.Lock()
			w.decisions[order.ID] = d
			w.mu.Unlock()
			return bourse.Fill{Machine: made}, d, nil
		}
		d.Rounds = append(d.Rounds, round)
	}
	d.Outcome, d.Message = bourse.OutcomeRefused, "no worker has capacity"
	c.decisions[order.ID] = d
	return bourse.Fill{}, d, bourse.Errorf(bourse.CodeInsufficient, "no worker has capacity")
}

func (c *cluster) Comparisons() []market.Comparison {
	return []market.Comparison{{Region: "gru", Policy: "packed@0123456789ab", Orders: 4, Differing: 1, Gain: 0.25}}
}

func (c *cluster) Claiming(id bourse.OrderID) (bourse.Member, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.claiming[id]
	return at, ok
}

func (c *cluster) Quote(_ context.Context, order bourse.Order) (bourse.Decision, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := bourse.Decision{Order: order.ID, App: order.App.Name, Regions: order.Regions, Outcome: bourse.OutcomeQuoted}
	if c.placeErr != nil {
		d.Outcome = bourse.OutcomeRefused
	}
	return d, c.placeErr
}

func (c *cluster) Recent(limit int, keep func(*bourse.Decision) bool) (out []bourse.Decision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.decisions {
		if keep(&d) && len(out) < limit {
			out = append(out, d)
		}
	}
	return out
}

func (c *cluster) Decisions(id bourse.OrderID) (out []bourse.Decision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.decisions {
		if d.Order == id || d.ChosenID == id {
			out = append(out, d)
		}
	}
	return out
}

func (c *cluster) lastOrder(t testing.TB) bourse.Order {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.orders) == 0 {
		t.Fatal("no order was placed")
	}
	return c.orders[len(c.orders)-1]
}

var (
	_       broker.Exchange  = (*cluster)(nil)
	_       lookup.Directory = (*cluster)(nil)
	_       fabric.Fabric    = (*cluster)(nil)
	errDown                  = bourse.Errorf(bourse.CodeUnavailable, "worker cannot be reached: %w", errors.New("connection refused"))
	errLost                  = bourse.Errorf(bourse.CodeTimeout, "the answer was lost: %w", io.ErrUnexpectedEOF)
)
