package balance

import (
	"strconv"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/proxy/route"
)

// Status returns the current state of all routes or, if app is not empty, of that app's routes. It includes the
// reasons why machines are not used. The result is meant only for operators, because it contains names from all
// tenants.
func (b *Balancer) Status(table *route.Table, app bourse.AppName) machinesapi.Proxy {
	targets := table.Targets()
	if app != "" {
		targets = table.App(app)
	}
	out := machinesapi.Proxy{Region: b.config.Region, Routes: make([]machinesapi.ProxyRoute, len(targets))}
	for i, t := range targets {
		out.Routes[i] = b.statusOf(t)
	}
	return out
}

// statusOf returns the current state of one target. To avoid delaying requests, it holds the mutex only while it reads
// this target's state.
func (b *Balancer) statusOf(t *route.Target) machinesapi.ProxyRoute {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := machinesapi.ProxyRoute{
		App: t.App.Name, AppID: t.App.ID, Org: t.App.Org, Ports: strconv.Itoa(t.Port.First), Handlers: t.Port.Handlers,
		Machines: make([]machinesapi.ProxyMachine, len(t.Backends)),
	}
	if t.Port.Last > t.Port.First {
		out.Ports += "-" + strconv.Itoa(t.Port.Last)
	}
	if q := b.queues[t.App.ID]; q != nil {
		out.Waiting = q.Len()
	}
	for i := range t.Backends {
		m := &t.Backends[i]
		load := b.load(m)
		s := machinesapi.ProxyMachine{
			Machine: m.Machine, Instance: m.Instance, Worker: m.Worker, Region: m.Region, State: m.State, Port: m.Service.InternalPort,
			Requests: load.Own, OtherRequests: load.InUse - load.Own, Soft: m.Service.Concurrency.Soft, Hard: m.Service.Concurrency.Hard,
		}
		s.Use, s.Why = useOf(m, load)
		out.Machines[i] = s
	}
	return out
}

func useOf(m *route.Backend, load Load) (machinesapi.ProxyUse, string) {
	hard := m.Service.Concurrency.Hard
	switch why := unusableReason(m); {
	case why != "":
		return machinesapi.UseNever, why
	case !m.Reachable:
		return machinesapi.UseLastResort, "its worker is unreachable"
	case load.Suspect:
		return machinesapi.UseLastResort, "it or its worker failed recently"
	case hard > 0 && load.InUse >= hard:
		return machinesapi.UseFull, "it is at its hard limit"
	case m.Starting():
		return machinesapi.UseStart, "it is " + string(m.State)
	case !m.Running():
		return machinesapi.UseStart, "it is " + string(m.State) + ": a request starts it"
	}
	return machinesapi.UseNow, ""
}
