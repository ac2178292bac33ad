package test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// split is a cluster on seven hosts. A cable connects the hosts in the west with those in
// the east.
type split struct {
	t    *testing.T
	lan  *lan
	mark string

	dying, west, east  *server // brokers in the west, the first of which is killed, and in the east
	gruWest, fra       *server // workers in the west
	gruEast, ams       *server // workers in the east
	dyingAPI, westAPI  *machinesapi.Client
	eastAPI            *machinesapi.Client
	promised           []machinesapi.Machine // machines in the replies to callers
	elsewhere, nowhere lostOrder
}

// lostOrder is an order for which the reply to the first claim was lost.
type lostOrder struct {
	created machinesapi.CreatedMachine
	err     error
}

// TestPartition partitions a network into two halves while a broker is waiting for the replies to two claims in the
// other half. Later that broker dies. Each half must continue with the servers that it can reach. Once the network is
// repaired, there must be one cluster again with exactly the machines in the replies to callers. No order may have two
// machines (invariant 7).
func TestPartition(t *testing.T) {
	t.Parallel()
	s := &split{t: t, lan: newLAN(t), mark: "bourse-split-" + strconv.FormatInt(time.Now().UnixNano(), 36)}
	s.start()
	for _, w := range []*server{s.gruWest, s.fra, s.gruEast, s.ams} {
		s.order(s.dyingAPI, on(w.Name, sleeper("", s.mark)))
	}
	converged(t, 7, []*machinesapi.Client{s.dyingAPI, s.westAPI, s.eastAPI}, s.workers()...)

	var lost sync.WaitGroup
	s.loseReplies(&lost)
	s.lan.cut()
	cut := time.Now()
	s.orderInBothHalves() // before any member has noticed the partition
	s.noticed()
	t.Logf("both halves listed the other half as unreachable %v after the cut", time.Since(cut).Round(time.Millisecond))
	s.orderInBothHalves()
	s.notOverThere()
	lost.Wait()
	s.brokerDies()
	t.Logf("cut for %v", time.Since(cut).Round(time.Millisecond))

	s.lan.heal()
	brokers := []*machinesapi.Client{s.westAPI, s.eastAPI}
	converged(t, 6, brokers, s.workers()...)
	took := eventually(t, 10*time.Second, "no order has two machines", s.once) // workers check the view at intervals
	t.Logf("no order had two machines after %v", took.Round(time.Millisecond))
	have := converged(t, 6, brokers, s.workers()...)
	kept(t, s.promised, have)
	if len(have) != len(s.promised) {
		t.Errorf("%d machines exist, want the %d in the replies", len(have), len(s.promised))
	}
	checkProcesses(t, s.westAPI, s.mark)
}

func (s *split) workers() []*server { return []*server{s.gruWest, s.fra, s.gruEast, s.ams} }

func (s *split) start() {
	s.t.Helper()
	const west, east = 1, 2
	join := ""
	place := func(srv *server, h *host) *server {
		srv.Launch, srv.Dial = h.launch, h.dial
		srv.Args = append(srv.Args, "--insecure", "--listen", h.addr.String()+":4280", "--gossip", h.addr.String()+":7946", "--join", join)
		return srv
	}
	broker := func(name string, h *host) *server {
		return place(newServer(s.t, name, "serve", "broker", "--name", name), h)
	}
	worker := func(name, region, slots string, side int) *server {
		w, _ := newWorker(s.t, name, region, "--allow-host", "--resource", "slots="+slots)
		return place(w, s.lan.host(side))
	}
	one, two, three := s.lan.host(west), s.lan.host(west), s.lan.host(east)
	join = fmt.Sprintf("%s:7946,%s:7946", two.addr, three.addr)
	s.dying, s.west, s.east = broker("b-dying", one), broker("b-west", two), broker("b-east", three)
	// With the policy below, an order for a slot goes to the worker with the fewest free slots, which is in the east.
	s.gruWest, s.gruEast = worker("gru-west", "gru", "100", west), worker("gru-east", "gru", "1", east)
	s.fra, s.ams = worker("fra-west", "fra", "100", west), worker("ams-east", "ams", "100", east)
	startAll(s.t, append(s.workers(), s.dying, s.west, s.east)...)
	s.dyingAPI, s.westAPI, s.eastAPI = client(s.t, s.dying), client(s.t, s.west), client(s.t, s.east)
	eventually(s.t, waitTimeout, "all servers know each other", func() error {
		return servertest.Agreed(s.t.Context(), 7, s.dyingAPI, s.westAPI, s.eastAPI)
	})
	policy := []byte(`{"name": "fit", "base": "best-fit"}`)
	if _, err := s.dyingAPI.Operator().SetPolicy(s.t.Context(), machinesapi.SetPolicy{Policy: policy}); err != nil {
		s.t.Fatal(err)
	}
}

// order places an order that must be filled, and records the reply.
func (s *split) order(api *machinesapi.Client, in machinesapi.CreateMachine) machinesapi.Machine {
	s.t.Helper()
	m := create(s.t, api, in)
	s.promised = append(s.promised, m)
	return m
}

// loseReplies places two orders, whose claims go to the east and whose replies are lost. It
// returns when both machines run.
func (s *split) loseReplies(waits *sync.WaitGroup) {
	s.t.Helper()
	hear, passed := deaf([]byte(" " + fabric.OrderClaim.Path() + " ")) // the path of a claim as it is encoded in a call
	s.lan.set(hear)
	place := func(region string, into *lostOrder) {
		in := sleeper(region, s.mark)
		in.Deadline = bourse.Duration(5 * time.Second)
		in.Config.Requirements = bourse.Requirements{"slots": {Count: 1}}
		in.Config.Metadata = map[string]string{"reply": "lost"}
		waits.Go(func() { into.created, into.err = s.dyingAPI.Create(s.t.Context(), app, in, "") })
	}
	place("gru", &s.elsewhere) // the region has another worker that is reachable
	place("ams", &s.nowhere)   // the region has no other worker that is reachable
	for range 2 {
		select {
		case <-passed:
		case <-time.After(10 * time.Second):
			s.t.Fatal("no claim was sent to the workers in the east")
		}
	}
	eventually(s.t, waitTimeout, "the orders are filled in the east", func() error {
		list, _, err := s.eastAPI.Machines(s.t.Context(), app, machinesapi.ListMachines{
			States: []bourse.State{bourse.StateStarted}, Metadata: map[string]string{"reply": "lost"},
		})
		if err == nil && len(list) != 2 {
			err = fmt.Errorf("%d machines, want 2", len(list))
		}
		return err
	})
}

// orderInBothHalves fills an order in each region that the client's half can reach.
func (s *split) orderInBothHalves() {
	s.t.Helper()
	for _, c := range []struct {
		api    *machinesapi.Client
		region string
		want   *server
	}{{s.westAPI, "gru", s.gruWest}, {s.westAPI, "fra", s.fra}, {s.eastAPI, "gru", s.gruEast}, {s.eastAPI, "ams", s.ams}} {
		if m := s.order(c.api, sleeper(c.region, s.mark)); string(m.Worker) != c.want.Name {
			s.t.Errorf("an order for %s was filled by %s across the cut, want %s", c.region, m.Worker, c.want.Name)
		}
	}
}

// noticed waits until each half shows its own machines as reachable, and the other half's
// machines as unchanged but unreachable.
func (s *split) noticed() {
	s.t.Helper()
	eventually(s.t, waitTimeout, "each half lists the other half's machines as unreachable", func() error {
		for api, near := range map[*machinesapi.Client][]string{
			s.westAPI: {s.gruWest.Name, s.fra.Name}, s.eastAPI: {s.gruEast.Name, s.ams.Name},
		} {
			if err := s.shown(api, near); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *split) shown(api *machinesapi.Client, near []string) error {
	for _, ask := range []func(context.Context, *machinesapi.Client) (machines, error){listed, selected} {
		all, err := ask(s.t.Context(), api)
		if err != nil {
			return err
		}
		far := 0
		for id, m := range all {
			want := machinesapi.HostUnreachable
			if w := string(m.Worker); w == near[0] || w == near[1] {
				want = machinesapi.HostOK
			} else {
				far++
			}
			if m.Host != want {
				return fmt.Errorf("%s lists machine %s of %s as %s, want %s", api.BaseURL, id, m.Worker, m.Host, want)
			}
		}
		if far < 2 {
			return fmt.Errorf("%s lists %d machines of the other half, want at least those that were created before the cut", api.BaseURL, far)
		}
	}
	return nil
}

// notOverThere checks that an order is refused if its region exists only in the other half.
func (s *split) notOverThere() {
	s.t.Helper()
	in := sleeper("ams", s.mark)
	in.Deadline = bourse.Duration(2 * time.Second)
	m, err := s.westAPI.Create(s.t.Context(), app, in, "")
	if code := bourse.CodeOf(err); err == nil || code == bourse.CodeInternal {
		s.t.Errorf("order for a region in the other half: machine %q, error %v; want a refusal", m.ID, err)
	}
	s.t.Logf("order for a region in the other half: %v", err)
}

// brokerDies kills the broker that lost the replies, after another broker has received its
// cancellations.
func (s *split) brokerDies() {
	s.t.Helper()
	e, n := &s.elsewhere, &s.nowhere
	if e.err != nil || string(e.created.Worker) != s.gruWest.Name {
		s.t.Errorf("order with another reachable worker: filled by %q, %v; want %s", e.created.Worker, e.err, s.gruWest.Name)
	} else {
		s.promised = append(s.promised, e.created.Machine)
	}
	if n.err == nil || n.created.OrderID == "" {
		s.t.Errorf("order whose only worker was cut off: machine %q of order %q, %v; want no machine", n.created.ID, n.created.OrderID, n.err)
	}
	s.t.Logf("order whose only worker was cut off: %v", n.err)
	eventually(s.t, waitTimeout, "the other broker knows the canceled orders", func() error {
		rows, err := query(s.t.Context(), s.westAPI, `SELECT order_id, worker FROM canceled_orders WHERE (order_id, worker) IN (VALUES (?, ?), (?, ?))`,
			string(e.created.OrderID), s.gruEast.Name, string(n.created.OrderID), s.ams.Name)
		if err == nil && len(rows) != 2 {
			err = fmt.Errorf("the view contains %v, want 2 rows", rows)
		}
		return err
	})
	if err := s.dying.Kill(); err != nil {
		s.t.Fatal(err)
	}
}

// once checks that, according to the workers, each order has only the machine in the reply to its caller, or no
// machine.
func (s *split) once() error {
	of := map[bourse.OrderID][]bourse.MachineID{}
	for id, m := range owned(s.t, s.workers()...) {
		of[m.Order] = append(of[m.Order], id)
	}
	for order, list := range of {
		if len(list) != 1 {
			return fmt.Errorf("order %s has the machines %v, want one", order, list)
		}
	}
	if list := of[s.nowhere.created.OrderID]; list != nil {
		return fmt.Errorf("an order whose reply contained no machine has the machines %v, want none", list)
	}
	return nil
}
