package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/trace/tracetest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// fullHost creates a stopped machine on a worker without free capacity. It returns both
// once all proxies route to the machine.
func (h *house) fullHost(app bourse.AppName) (id bourse.MachineID, full bourse.WorkerID) {
	h.Helper()
	id = h.create(app, h.order(kindWeb))
	h.eventually("the proxies route to the machine", func() error {
		list, err := machinesapi.Proxies{Client: h.api}.Of(h.Context(), app)
		if err != nil {
			return err
		}
		for _, p := range list {
			if len(p.Routes) != 2 {
				return fmt.Errorf("%s does not route to the machine: %s", p.ID, p.Error)
			}
			full = p.Routes[0].Machines[0].Worker
		}
		if len(list) != len(h.proxies) {
			return errors.New("the broker does not know all proxies")
		}
		return nil
	})
	h.run("filler", h.order(kindWeb), string(full))
	return id, full
}

// TestFullHostBehindTwoProxies sends simultaneous requests through two proxies for a machine whose host is full. A
// single other machine, which is ordered over NATS, must answer them.
func TestFullHostBehindTwoProxies(t *testing.T) {
	t.Parallel()
	h := newHouseOverNATS(t, 2, 2, []string{"--memory", "1536MiB"})
	id, full := h.fullHost("shop")
	var replies [2]reply
	var asking sync.WaitGroup
	for i, p := range h.proxies {
		asking.Go(func() {
			var err error
			if replies[i], err = get(http.DefaultClient, "http://"+p.Web[0]+"/", "shop.localhost", ""); err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
		})
	}
	if asking.Wait(); t.Failed() {
		return
	}
	m := h.machine("shop", bourse.MachineID(replies[0].Machine))
	if replies[1].Machine != string(m.ID) || m.ID == id || m.Worker == full {
		t.Errorf("machine %s, of worker %s, and machine %s answered, want the same machine twice, on another worker than %s", m.ID, m.Worker, replies[1].Machine, full)
	}
	list, _, err := h.api.Machines(t.Context(), "shop", machinesapi.ListMachines{})
	if err != nil || len(list) != 2 {
		t.Errorf("%d machines, want the stopped one and another; %v", len(list), err)
	}
}

// TestTraceOfAFailover sends a request for a machine whose host is full. Another machine, ordered on another host, must
// answer it. The trace must show the time spent in the proxy, the broker and both workers.
func TestTraceOfAFailover(t *testing.T) {
	t.Parallel()
	collector := tracetest.New(t)
	h := newHouseWith(t, 2, 1, []string{"--memory", "1536MiB"}, nil, func(c *exec.Cmd) error {
		c.Env = append(os.Environ(), collector.Env()...)
		return c.Start()
	})
	id, full := h.fullHost("shop")

	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+h.proxies[0].Web[0]+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "shop.localhost"
	req.Header.Set("Traceparent", "00-"+trace+"-"+parent+"-01")
	got, err := send(http.DefaultClient, req)
	if err != nil {
		t.Fatal(err)
	}
	m := h.machine("shop", bourse.MachineID(got.Machine))
	if m.ID == id || m.Worker == full || !m.Config.AutoDestroy {
		t.Errorf("machine %s on %s answered (auto_destroy %v), want a machine other than %s on a worker other than %s", m.ID, m.Worker, m.Config.AutoDestroy, id, full)
	}
	spans := collector.Await(
		t, trace, "request", "request > choose",
		"request > ready > worker/machine/use > start", // refused because the host is full
		"request > order > proxy/orders > worker/order/claim",
		"request > ready > worker/machine/use > accept", // on the other worker
		"request > send",
	)
	services := map[string]bool{}
	for _, s := range spans {
		services[s.Service] = true
		switch {
		case s.Name == "request" && (s.Parent != parent || s.Attributes["bourse.machine"] != got.Machine || s.Attributes["http.response.status_code"] != "200"):
			t.Errorf("the request's span is %+v, want parent %s, machine %s and status 200", s, parent, got.Machine)
		case s.Name == "send" && !strings.Contains(got.Traceparent, trace+"-"+s.ID):
			t.Errorf("the machine received the trace header %q, want the sending span %s", got.Traceparent, s.ID)
		}
	}
	if len(services) != 3 {
		t.Errorf("the spans come from %v, want a proxy, a broker and workers", services)
	}
}
