package machinesapi

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// ProxyList is what proxies route where, by their ids.
type ProxyList struct {
	Proxies []Proxy `json:"proxies"`
}

// Proxy is what a proxy routes where, and why a machine is not used.
type Proxy struct {
	ID     bourse.WorkerID `json:"id"`
	Region bourse.Region   `json:"region"`
	Error  string          `json:"error,omitempty"` // why it does not answer; then it has no routes here
	Routes []ProxyRoute    `json:"routes"`          // by app, then by port
}

// ProxyRoute is one port, or range of ports, of an app.
type ProxyRoute struct {
	App      bourse.AppName     `json:"app"`
	AppID    string             `json:"app_id"`
	Org      string             `json:"org,omitempty"`
	Ports    string             `json:"ports"` // "443", "8000-8010"
	Handlers []workload.Handler `json:"handlers,omitempty"`
	URLs     []string           `json:"urls,omitempty"`    // at which this proxy's listeners serve it, the best first
	Waiting  int                `json:"waiting,omitempty"` // requests of the app that wait for room
	Machines []ProxyMachine     `json:"machines"`
}

// ProxyMachine is a machine as requests find it.
type ProxyMachine struct {
	Machine  bourse.MachineID  `json:"machine"`
	Instance bourse.InstanceID `json:"instance_id"`
	Worker   bourse.WorkerID   `json:"worker"`
	Region   bourse.Region     `json:"region"`
	State    bourse.State      `json:"state"`
	Port     int               `json:"port,omitempty"`           // its own; 0: its $PORT
	Ours     int               `json:"requests"`                 // of this proxy
	Others   int               `json:"other_requests,omitempty"` // of the other proxies
	Soft     int               `json:"soft_limit"`
	Hard     int               `json:"hard_limit,omitempty"`
	Use      ProxyUse          `json:"use"`
	Why      string            `json:"why,omitempty"` // of every use but yes
}

// ProxyUse is when requests reach a machine.
type ProxyUse string

// The uses.
const (
	UseYes   ProxyUse = "yes"
	UseStart ProxyUse = "start" // when there are more requests than the others take, or no others
	UseLast  ProxyUse = "last"  // when there is no other
	UseFull  ProxyUse = "full"
	UseNo    ProxyUse = "no"
)

// Proxies is a client for the proxies' routes.
type Proxies struct{ Client *Client }

// All asks every proxy about all apps, which takes a token for everything. One that
// does not answer is there with an error. Codes: forbidden.
func (p Proxies) All(ctx context.Context) ([]Proxy, error) {
	return p.get(ctx, path("proxies"))
}

// Of asks every proxy about one app. Codes: not_found (the app).
func (p Proxies) Of(ctx context.Context, app bourse.AppName) ([]Proxy, error) {
	return p.get(ctx, path("apps", string(app), "proxies"))
}

func (p Proxies) get(ctx context.Context, at string) ([]Proxy, error) {
	out, err := ask[ProxyList](ctx, p.Client, call{method: http.MethodGet, path: at})
	return out.Proxies, err
}
