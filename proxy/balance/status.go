package balance

import (
	"strconv"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/route"
	"github.com/bourse-dev/bourse/service"
)

// Status is what a proxy routes where, and why a machine is not used. It is for the
// operator: it names everything.
type Status struct {
	Region bourse.Region  `json:"region"` // of the proxy
	Routes []TargetStatus `json:"routes"` // by app, then by port
}

// TargetStatus is one port, or range of ports, of an app.
type TargetStatus struct {
	App      bourse.AppName    `json:"app"`
	AppID    string            `json:"app_id"`
	Org      string            `json:"org,omitempty"`
	Ports    string            `json:"ports"` // "443", "8000-8010"
	Handlers []service.Handler `json:"handlers,omitempty"`
	Waiting  int               `json:"waiting,omitempty"` // requests of the app that wait for room
	Machines []MachineStatus   `json:"machines"`
}

// MachineStatus is a machine as requests find it.
type MachineStatus struct {
	Machine  bourse.MachineID  `json:"machine"`
	Instance bourse.InstanceID `json:"instance_id"`
	Worker   bourse.WorkerID   `json:"worker"`
	Region   bourse.Region     `json:"region"`
	State    bourse.State      `json:"state"`
	Port     int               `json:"port,omitempty"` // its own; 0: its $PORT
	Ours     int               `json:"requests"`       // of this proxy
	Others   int               `json:"other_requests,omitempty"`
	Soft     int               `json:"soft_limit"`
	Hard     int               `json:"hard_limit,omitempty"`
	Use      Use               `json:"use"`
	Why      string            `json:"why,omitempty"` // of every use but yes
}

// Use is when requests reach a machine.
type Use string

// The uses.
const (
	UseYes   Use = "yes"
	UseStart Use = "start" // when there are more requests than the others take, or no others
	UseLast  Use = "last"  // when there is no other
	UseFull  Use = "full"
	UseNo    Use = "no"
)

// Status returns what a table's requests find now. With an app it is of that one
// alone.
func (b *Balancer) Status(table *route.Table, app bourse.AppName) Status {
	targets := table.Targets()
	if app != "" {
		targets = table.App(app)
	}
	out := Status{Region: b.config.Region, Routes: make([]TargetStatus, len(targets))}
	for i, t := range targets {
		out.Routes[i] = b.statusOf(t)
	}
	return out
}

// statusOf holds the mutex for one target at a time: requests go on meanwhile.
func (b *Balancer) statusOf(t *route.Target) TargetStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := TargetStatus{
		App: t.App.Name, AppID: t.App.ID, Org: t.App.Org, Ports: strconv.Itoa(t.Port.First), Handlers: t.Port.Handlers,
		Machines: make([]MachineStatus, len(t.Backends)),
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
		s := MachineStatus{
			Machine: m.Machine, Instance: m.Instance, Worker: m.Worker, Region: m.Region, State: m.State, Port: m.Service.InternalPort,
			Ours: load.Ours, Others: load.Use - load.Ours, Soft: m.Service.Concurrency.Soft, Hard: m.Service.Concurrency.Hard,
		}
		s.Use, s.Why = useOf(m, load)
		out.Machines[i] = s
	}
	return out
}

func useOf(m *route.Backend, load Load) (Use, string) {
	hard := m.Service.Concurrency.Hard
	switch why := unfit(m); {
	case why != "":
		return UseNo, why
	case !m.Heard:
		return UseLast, "its worker is not heard from"
	case load.Suspect:
		return UseLast, "it, or its worker, has just failed"
	case hard > 0 && load.Use >= hard:
		return UseFull, "it has as many requests as it may"
	case m.Coming():
		return UseStart, "it is " + string(m.State)
	case !m.Runs():
		return UseStart, "it is " + string(m.State) + ": a request starts it"
	}
	return UseYes, ""
}
