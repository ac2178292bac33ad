package tenant

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// ProxyStatusPath is the path of the endpoint through which a proxy reports its status to brokers.
// The query "?app=NAME" limits the status to one app.
const ProxyStatusPath = "/proxy/status"

// Proxies serves the proxy endpoints.
type Proxies struct {
	Apps    *lookup.Apps
	Proxies func() []bourse.Member // returns the proxies that are currently members; nil: there are no proxies
	Fabric  fabric.Fabric
	Timeout time.Duration // time limit for the reply of each proxy

	budget budget
}

// Routes returns the handler's routes.
func (h *Proxies) Routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.On("GET /v1/proxies", endpoint.Cluster, h.all).Writes(machinesapi.ProxyList{}),
		endpoint.On("GET "+endpoint.OneApp+"/proxies", endpoint.App, h.of).Writes(machinesapi.ProxyList{}),
	}
}

func (h *Proxies) all(w http.ResponseWriter, r *endpoint.Request) error {
	list, release := h.ask(r.Context(), "")
	defer release()
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.ProxyList{Proxies: list})
}

func (h *Proxies) of(w http.ResponseWriter, r *endpoint.Request) error {
	app, err := h.Apps.FindCached(r.Context(), r.App())
	if err != nil {
		return err
	}
	list, release := h.ask(r.Context(), app.Name)
	defer release()
	for i := range list {
		list[i].Routes = slices.DeleteFunc(list[i].Routes, func(t machinesapi.ProxyRoute) bool { return t.App != app.Name || t.AppID != app.ID })
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.ProxyList{Proxies: list})
}

// Limits for requests to proxies.
const (
	concurrency = 16
	maxReply    = 16 << 20 // size of a proxy's reply, in bytes; enough for about 50 000 machines
	maxAppReply = 1 << 20  // size of a proxy's reply about a single app, in bytes
)

// ask asks all proxies for their status. If app is not empty, the replies contain only that app. The replies count
// toward the memory limit until release is called.
func (h *Proxies) ask(ctx context.Context, app bourse.AppName) (list []machinesapi.Proxy, release func()) {
	if h.Proxies == nil {
		return []machinesapi.Proxy{}, func() {}
	}
	taken := share{of: &h.budget}
	members := h.Proxies()
	slices.SortFunc(members, func(a, b bourse.Member) int { return cmp.Compare(a.ID, b.ID) })
	out := make([]machinesapi.Proxy, len(members))
	var group errgroup.Group
	group.SetLimit(concurrency)
	for i, m := range members {
		group.Go(func() error {
			said, err := h.one(ctx, m, app, &taken)
			if err != nil {
				said = machinesapi.Proxy{Error: bourse.MessageOf(err)}
			}
			said.ID, said.Region = m.ID, m.Region
			said.Routes = append([]machinesapi.ProxyRoute{}, said.Routes...)
			out[i] = said
			return nil
		})
	}
	_ = group.Wait() // no function of the group returns an error
	return out, taken.release
}

func (h *Proxies) one(ctx context.Context, to bourse.Member, app bourse.AppName, taken *share) (said machinesapi.Proxy, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	at, most := url.URL{Path: ProxyStatusPath}, int64(maxReply)
	if app != "" {
		most = maxAppReply
		at.RawQuery = url.Values{"app": {string(app)}}.Encode()
	}
	resp, err := h.Fabric.Call(ctx, to, &http.Request{
		Method: http.MethodGet, URL: &at, Header: http.Header{}, Body: http.NoBody, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	})
	if err != nil {
		return said, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return said, bourse.Errorf(bourse.CodeUnavailable, "proxy %s did not return its routes (status %d)", to.ID, resp.StatusCode)
	}
	raw, err := io.ReadAll(io.LimitReader(countingReader{resp.Body, taken}, most+1))
	if err == nil && int64(len(raw)) > most {
		err = bourse.Errorf(bourse.CodeInvalid, "the reply exceeds %d bytes", most)
	}
	if err == nil {
		err = taken.take(decoded(raw))
	}
	if err == nil {
		said, err = decode(raw)
	}
	if err != nil {
		return said, bourse.Errorf(bourse.CodeUnavailable, "read the reply from proxy %s: %w", to.ID, err)
	}
	return said, nil
}

// decode decodes a proxy's status. It leaves the ID for the caller to set, because a proxy must not choose its own ID.
func decode(raw []byte) (said machinesapi.Proxy, err error) {
	if err := json.Unmarshal(raw, &said); err != nil {
		return machinesapi.Proxy{}, err
	}
	said.Error = ""
	for i := range said.Routes {
		if said.Routes[i].Machines == nil {
			said.Routes[i].Machines = []machinesapi.ProxyMachine{}
		}
	}
	return said, nil
}
