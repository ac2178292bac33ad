package proxy

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/trace/tracetest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// A request for a machine whose host is full is answered by another machine, which
// was ordered for it elsewhere; and its trace shows where the time went, from the
// proxy through the broker to both workers.
func TestAFullHostAndATrace(t *testing.T) {
	t.Parallel()
	collector := tracetest.New(t)
	h := newHouseWith(t, 2, 1, []string{"--memory", "1536MiB"}, nil, func(c *exec.Cmd) error {
		c.Env = append(os.Environ(), collector.Env()...)
		return c.Start()
	})
	id := h.create("shop", h.order(kindWeb))
	var full bourse.WorkerID
	h.eventually("the proxy routes to the machine", func() error {
		list, err := machinesapi.Proxies{Client: h.api}.Of(t.Context(), "shop")
		if err != nil {
			return err
		}
		if len(list) == 1 && len(list[0].Routes) == 2 {
			full = list[0].Routes[0].Machines[0].Worker
			return nil
		}
		return errors.New("it does not")
	})
	h.run("filler", h.order(kindWeb), string(full))

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
		t.Errorf("machine %s on %s answered (auto_destroy %v), want another than %s on another worker than %s", m.ID, m.Worker, m.Config.AutoDestroy, id, full)
	}
	spans := collector.Await(
		t, trace, "request", "request > choose",
		"request > ready > worker/machine/use > start", // refused
		"request > order > proxy/orders > worker/order/claim",
		"request > ready > worker/machine/use > accept", // of the other
		"request > send",
	)
	services := map[string]bool{}
	for _, s := range spans {
		services[s.Service] = true
		switch {
		case s.Name == "request" && (s.Parent != parent || s.Attributes["bourse.machine"] != got.Machine || s.Attributes["http.response.status_code"] != "200"):
			t.Errorf("the request's span is %+v", s)
		case s.Name == "send" && !strings.Contains(got.Traceparent, trace+"-"+s.ID):
			t.Errorf("the machine was told %q, want the span that sends, %s", got.Traceparent, s.ID)
		}
	}
	if len(services) != 3 {
		t.Errorf("spans are of %v, want a proxy, a broker and workers", services)
	}
}
