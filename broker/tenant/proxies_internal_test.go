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

// saying is a fabric whose members all say the same.
type saying struct {
	fabric.Fabric
	text string
}

func (s saying) Call(context.Context, bourse.Member, *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(s.text))}, nil
}

func asking(text string, proxies ...bourse.WorkerID) *Proxies {
	return &Proxies{Fabric: saying{text: text}, Patience: time.Minute, Proxies: func() (out []bourse.Member) {
		for _, id := range proxies {
			out = append(out, bourse.Member{ID: id})
		}
		return out
	}}
}

// TestWhatProxiesSayIsBounded: over all requests, until their replies are written; and
// what is short as JSON and long in memory counts as what it becomes.
func TestWhatProxiesSayIsBounded(t *testing.T) {
	h := asking(`{"routes":[{"app":"web","machines":[{"machine":"148e21ea1d5389"}]}]}`, "p1", "p2")
	others := share{of: &h.held}
	if err := others.take(mostHeld); err != nil {
		t.Fatal(err)
	}
	errorsOf := func(app bourse.AppName) (n int) {
		list, release := h.ask(t.Context(), app)
		defer release()
		if h.held.held > mostHeld {
			t.Errorf("%d bytes are held", h.held.held)
		}
		for _, p := range list {
			if p.Error != "" {
				n++
			}
		}
		return n
	}
	if n := errorsOf(""); n != 2 {
		t.Errorf("%d proxies of 2 have an error while others hold all", n)
	}
	others.release()
	if n := errorsOf(""); n != 0 || h.held.held != 0 {
		t.Errorf("then %d proxies have an error, and %d bytes are held after it", n, h.held.held)
	}
	empty := `{"routes":[{"machines":[` + strings.Repeat("{},", 1000) + `{}]}]}`
	h = asking(empty, "p1", "p2")
	others = share{of: &h.held}
	if err := others.take(mostHeld - 300_000); err != nil {
		t.Fatal(err)
	}
	if n := errorsOf("web"); n != 1 || h.held.held != others.held {
		t.Errorf("of two proxies that say %d bytes which take %d, %d have an error; %d bytes are held after it", len(empty), decoded([]byte(empty)), n, h.held.held-others.held)
	}
	h = asking(strings.Repeat(" ", maxAppReply)+`{"routes":[]}`, "p1")
	if n := errorsOf("web"); n != 1 {
		t.Error("a proxy said more than it may of one app")
	}
	if n := errorsOf(""); n != 0 {
		t.Error("of all apps it may say more")
	}
	if size := max(unsafe.Sizeof(machinesapi.ProxyMachine{}), unsafe.Sizeof(machinesapi.ProxyRoute{})); size > objectSize {
		t.Errorf("an object takes %d bytes, more than %d", size, objectSize)
	}
}

// FuzzDecode: what a proxy says is read or refused, and can be written again.
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
