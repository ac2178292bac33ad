package machinesapi

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// ProxyList lists the proxies with their routes, by ID.
type ProxyList struct {
	Proxies []Proxy `json:"proxies"`
}

// Proxy contains a proxy's routes.
type Proxy struct {
	ID     bourse.WorkerID `json:"id"`
	Region bourse.Region   `json:"region"`
	Error  string          `json:"error,omitempty"` // why it did not answer; in this case it has no routes here
	Routes []ProxyRoute    `json:"routes"`          // by app, then by port
}

// ProxyRoute is one port, or one range of ports, of an app.
type ProxyRoute struct {
	App      bourse.AppName     `json:"app"`
	AppID    string             `json:"app_id"`
	Org      string             `json:"org,omitempty"`
	Ports    string             `json:"ports"` // "443", "8000-8010"
	Handlers []workload.Handler `json:"handlers,omitempty"`
	URLs     []string           `json:"urls,omitempty"`    // URLs at which this proxy's listeners serve the app, the best first
	Waiting  int                `json:"waiting,omitempty"` // requests of the app that wait for capacity
	Machines []ProxyMachine     `json:"machines"`
}

// ProxyMachine is a machine as a proxy sees it.
type ProxyMachine struct {
	Machine  bourse.MachineID  `json:"machine"`
	Instance bourse.InstanceID `json:"instance_id"`
	Worker   bourse.WorkerID   `json:"worker"`
	Region   bourse.Region     `json:"region"`
	State    bourse.State      `json:"state"`
	Port     int               `json:"port,omitempty"`           // the service's port; 0: the machine's $PORT
	Ours     int               `json:"requests"`                 // current requests of this proxy
	Others   int               `json:"other_requests,omitempty"` // current requests of other proxies
	Soft     int               `json:"soft_limit"`
	Hard     int               `json:"hard_limit,omitempty"`
	Use      ProxyUse          `json:"use"`
	Why      string            `json:"why,omitempty"` // reason, unless Use is yes
}

// ProxyUse tells when a proxy uses a machine.
type ProxyUse string

// Uses of a machine.
const (
	UseYes   ProxyUse = "yes"
	UseStart ProxyUse = "start" // if the other machines cannot serve all requests, or there are none
	UseLast  ProxyUse = "last"  // if there is no other machine
	UseFull  ProxyUse = "full"
	UseNo    ProxyUse = "no"
)

// Proxies calls the API for the proxies' routes.
type Proxies struct{ Client *Client }

// All returns every proxy's routes for all apps. It requires a token for the whole cluster. A proxy that does not
// answer has an error. Errors: forbidden.
func (p Proxies) All(ctx context.Context) ([]Proxy, error) {
	return p.get(ctx, path("proxies"))
}

// Of returns every proxy's routes for one app. Errors: not_found (the app).
func (p Proxies) Of(ctx context.Context, app bourse.AppName) ([]Proxy, error) {
	return p.get(ctx, path("apps", string(app), "proxies"))
}

func (p Proxies) get(ctx context.Context, at string) ([]Proxy, error) {
	out, err := ask[ProxyList](ctx, p.Client, call{method: http.MethodGet, path: at})
	return out.Proxies, err
}
