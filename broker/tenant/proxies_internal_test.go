package tenant

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// saying is a fabric in which every member sends the same reply.
type saying struct {
	fabric.Fabric
	text string
}

func (s saying) Call(context.Context, bourse.Member, *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(s.text))}, nil
}

func asking(text string, proxies ...bourse.WorkerID) *Proxies {
	return &Proxies{Fabric: saying{text: text}, Timeout: time.Minute, Proxies: func() (out []bourse.Member) {
		for _, id := range proxies {
			out = append(out, bourse.Member{ID: id})
		}
		return out
	}}
}

// TestMemoryForProxyRepliesIsLimited checks that the memory for proxies' replies is limited. The limit applies to all
// requests together, and a reply counts until the broker's own reply is written. A reply that is short as JSON but
// large when decoded counts with its decoded size.
func TestMemoryForProxyRepliesIsLimited(t *testing.T) {
	h := asking(`{"routes":[{"app":"web","machines":[{"machine":"148e21ea1d5389"}]}]}`, "p1", "p2")
	others := share{of: &h.budget}
	if err := others.take(maxHeld); err != nil {
		t.Fatal(err)
	}
	errorsOf := func(app bourse.AppName) (n int) {
		list, release := h.ask(t.Context(), app)
		defer release()
		if h.budget.used > maxHeld {
			t.Errorf("%d bytes are held", h.budget.used)
		}
		for _, p := range list {
			if p.Error != "" {
				n++
			}
		}
		return n
	}
	if n := errorsOf(""); n != 2 {
		t.Errorf("%d of 2 proxies have an error while other requests use the whole limit", n)
	}
	others.release()
	if n := errorsOf(""); n != 0 || h.budget.used != 0 {
		t.Errorf("then %d proxies have an error, and %d bytes are held afterwards", n, h.budget.used)
	}
	empty := `{"routes":[{"machines":[` + strings.Repeat("{},", 1000) + `{}]}]}`
	h = asking(empty, "p1", "p2")
	others = share{of: &h.budget}
	if err := others.take(maxHeld - 300_000); err != nil {
		t.Fatal(err)
	}
	if n := errorsOf("web"); n != 1 || h.budget.used != others.used {
		t.Errorf("of two proxies with replies of %d bytes that occupy %d, %d have an error; %d bytes are held afterwards", len(empty), decoded([]byte(empty)), n, h.budget.used-others.used)
	}
	h = asking(strings.Repeat(" ", maxAppReply)+`{"routes":[]}`, "p1")
	if n := errorsOf("web"); n != 1 {
		t.Error("a proxy's reply about one app exceeded its limit")
	}
	if n := errorsOf(""); n != 0 {
		t.Error("a reply about all apps should have a higher limit")
	}
	if size := max(unsafe.Sizeof(machinesapi.ProxyMachine{}), unsafe.Sizeof(machinesapi.ProxyRoute{})); size > objectSize {
		t.Errorf("an object occupies %d bytes, more than %d", size, objectSize)
	}
}

// FuzzDecode checks that a proxy's reply is decoded or rejected, and that the result can be encoded again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"region":"gru","routes":[{"app":"web","app_id":"1","ports":"80","handlers":["http"],"urls":["http://web.localhost/"],"machines":[{"machine":"148e21ea1d5389","use":"yes"}]}]}`))
	f.Add([]byte(`{"routes":[{"machines":null}],"error":"x"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		said, err := decode(raw)
		if err != nil {
			return
		}
		if _, err := json.Marshal(said); err != nil || said.Error != "" {
			t.Errorf("%v, error %q", err, said.Error)
		}
	})
}
