package hostile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// answering returns the config of a machine that replies with a text.
func answering(t *testing.T, text string) *bourse.Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &bourse.Config{
		Image: "host", Init: bourse.Init{Exec: []string{self}}, Env: map[string]string{machineVariable: text},
		StoredConfig: bourse.StoredConfig{Services: []byte(`[{"internal_port":8080,"protocol":"tcp","ports":[{"port":80,"handlers":["http"]}]}]`)},
	}
}

// TestWorkerDoesNotReceiveTrafficOfOtherApps has a worker with a valid certificate and a modified program, which publishes
// and reports its machines as machines of another app. No list of that app may contain them, and the proxy must not
// send them the app's requests.
func TestWorkerDoesNotReceiveTrafficOfOtherApps(t *testing.T) {
	s := startSecure(t)
	ctx := t.Context()
	var shop machinesapi.App
	eventually(t, "create app shop", func() (err error) {
		shop, err = s.api.CreateApp(ctx, machinesapi.CreateApp{Name: "shop", Org: "acme"})
		return err
	})
	if _, err := s.api.CreateApp(ctx, machinesapi.CreateApp{Name: "evil", Org: "thief"}); err != nil {
		t.Fatal(err)
	}
	lie := fmt.Sprintf(`"shop", %q`, shop.ID)
	liar := servertest.New(t, "w2", append([]string{
		"serve", "worker", "--name", "w2", "--region", "mad", "--data", filepath.Join(s.dir, "w2"), "--cpus", "4", "--memory", "4GiB",
		"--ephemeral", "--join", s.broker.Addr,
	}, s.credentials("w2", bourse.RoleWorker)...)...)
	liar.Path = servertest.BuildChanged(
		t,
		servertest.Change{
			File: "view/inventory/machine.go", Old: `"app": cleanText(m.App), "app_id": cleanText(m.AppID)`,
			New: fmt.Sprintf(`"app": "shop", "app_id": %q`, shop.ID),
		},
		servertest.Change{File: "worker/machines/verbs.go", Old: "all = tx.MachinesOf(*app)", New: "_ = app"},
		servertest.Change{File: "worker/machines/verbs.go", Old: "out = append(out, m)", New: "m.App, m.AppID = " + lie + "; out = append(out, m)"},
		servertest.Change{
			File: "worker/api.go", Old: "fabric.MachineShow.Handle(mux, w.state.Machine)",
			New: "fabric.MachineShow.Handle(mux, func(ctx context.Context, id bourse.MachineID) (bourse.Machine, error) {" +
				"m, err := w.state.Machine(ctx, id); m.App, m.AppID = " + lie + "; return m, err })",
		},
	)
	proxy := servertest.New(t, "p1", append([]string{
		"serve", "proxy", "--name", "p1", "--region", "mad", "--drain", "1s", "--http", "127.0.0.1:0=any", "--join", s.broker.Addr,
	}, s.credentials("p1", bourse.RoleProxy)...)...)
	servertest.StartAll(t, liar, proxy)

	var honest, stolen machinesapi.CreatedMachine
	eventually(t, "create a machine of shop", func() (err error) {
		honest, err = s.api.Create(ctx, "shop", machinesapi.CreateMachine{Region: "gru", Config: answering(t, "honest")}, "")
		return err
	})
	eventually(t, "create a machine of evil", func() (err error) {
		stolen, err = s.api.Create(ctx, "evil", machinesapi.CreateMachine{Region: "mad", Config: answering(t, "stolen")}, "")
		return err
	})

	get := func() (string, error) {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+proxy.Web[0]+"/", nil)
		if err != nil {
			return "", err
		}
		req.Host, req.Close = "shop.localhost", true
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d, want 200: %s", resp.StatusCode, text)
		}
		return string(text), err
	}
	eventually(t, "a request reaches a machine of shop", func() error { _, err := get(); return err })
	// Wait until the false rows are in the broker's view, where everybody can see them.
	eventually(t, "the broker's view contains the false rows", func() error {
		for line, err := range s.api.Query(ctx, machinesapi.ViewQuery{Statement: "SELECT id FROM unplaced_machines WHERE claimed_app = 'shop'"}) {
			if err != nil || line.Row != nil {
				return err
			}
		}
		return errors.New("the view contains no machine without a placement")
	})
	for range 40 {
		if text, err := get(); text != "honest" {
			t.Fatalf("request for shop: got %q, %v; want \"honest\"", text, err)
		}
	}
	list, _, err := s.api.Machines(ctx, "shop", machinesapi.ListMachines{})
	if err != nil || len(list) != 1 || list[0].ID != honest.Machine.ID {
		t.Errorf("shop has machines %+v, %v, want only %s", list, err, honest.Machine.ID)
	}
	if m, err := s.api.Machine(ctx, "shop", stolen.Machine.ID); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("the malicious worker's machine is listed as shop's: %+v, %v", m, err)
	}
	update := machinesapi.UpdateMachine{Config: answering(t, "with the environment of shop")}
	if _, err := s.api.Update(ctx, "shop", stolen.Machine.ID, update, ""); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("the malicious worker's machine was updated as a machine of shop: %v", err)
	}
}

// eventually calls do until it succeeds. It fails the test at the time limit.
func eventually(t *testing.T, what string, do func() error) {
	t.Helper()
	var err error
	if !servertest.Within(time.Minute, func() bool { err = do(); return err == nil }) {
		t.Fatalf("%s: %v", what, err)
	}
}
