package machinesapi

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// ProxyList lists the proxies and their routes, sorted by the proxies' IDs.
type ProxyList struct {
	Proxies []Proxy `json:"proxies"`
}

// Proxy contains the routes of one proxy.
type Proxy struct {
	ID     bourse.WorkerID `json:"id"`
	Region bourse.Region   `json:"region"`
	Error  string          `json:"error,omitempty"` // why the proxy did not answer, in which case Routes is empty
	Routes []ProxyRoute    `json:"routes"`          // sorted by app, then by port
}

// ProxyRoute describes one port, or one range of ports, of an app.
type ProxyRoute struct {
	App      bourse.AppName     `json:"app"`
	AppID    string             `json:"app_id"`
	Org      string             `json:"org,omitempty"`
	Ports    string             `json:"ports"` // such as "443" or "8000-8010"
	Handlers []workload.Handler `json:"handlers,omitempty"`
	URLs     []string           `json:"urls,omitempty"`    // URLs at which this proxy's listeners serve the app, best first
	Waiting  int                `json:"waiting,omitempty"` // number of the app's requests that are waiting for capacity
	Machines []ProxyMachine     `json:"machines"`
}

// ProxyMachine describes a machine from a proxy's point of view.
type ProxyMachine struct {
	Machine       bourse.MachineID  `json:"machine"`
	Instance      bourse.InstanceID `json:"instance_id"`
	Worker        bourse.WorkerID   `json:"worker"`
	Region        bourse.Region     `json:"region"`
	State         bourse.State      `json:"state"`
	Port          int               `json:"port,omitempty"`           // the service's port; 0: the machine's $PORT
	Requests      int               `json:"requests"`                 // number of requests from this proxy that are in progress on the machine
	OtherRequests int               `json:"other_requests,omitempty"` // number of requests from other proxies that are in progress on the machine
	Soft          int               `json:"soft_limit"`
	Hard          int               `json:"hard_limit,omitempty"`
	Use           ProxyUse          `json:"use"`
	Why           string            `json:"why,omitempty"` // reason for Use, unless Use is yes
}

// ProxyUse describes whether, and under what conditions, a proxy sends requests to a machine.
type ProxyUse string

// Values of ProxyUse.
const (
	UseNow        ProxyUse = "yes"
	UseStart      ProxyUse = "start" // the machine is started if the other machines, if any, cannot serve all requests
	UseLastResort ProxyUse = "last"  // the machine is used only if no other machine can be used
	UseFull       ProxyUse = "full"
	UseNever      ProxyUse = "no"
)

// Proxies is a client for the proxies' routes.
type Proxies struct{ Client *Client }

// All returns the routes of every proxy, for all apps. It requires a token for the whole cluster.
// If a proxy does not answer, its entry contains an error. Errors: forbidden.
func (p Proxies) All(ctx context.Context) ([]Proxy, error) {
	return p.get(ctx, path("proxies"))
}

// Of returns the routes of every proxy, for one app. Errors: not_found (the app).
func (p Proxies) Of(ctx context.Context, app bourse.AppName) ([]Proxy, error) {
	return p.get(ctx, path("apps", string(app), "proxies"))
}

func (p Proxies) get(ctx context.Context, at string) ([]Proxy, error) {
	out, err := ask[ProxyList](ctx, p.Client, call{method: http.MethodGet, path: at})
	return out.Proxies, err
}
