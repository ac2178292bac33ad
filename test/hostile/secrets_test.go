package hostile

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestSecretsDoNotLeak gives a host process its app's secret, also after its worker's daemon was killed and after a
// restart. No file of the cluster, no log line of its servers and no reply of the API may contain the secret.
func TestSecretsDoNotLeak(t *testing.T) {
	value := rand.Text()
	digest := sha256.Sum256([]byte(value))
	data := t.TempDir()
	t.Run("running", func(t *testing.T) {
		d := servertest.StartDev(t, "--regions", "gru", "--workers", "1", "--data", data)
		api := d.Client()
		if _, err := api.CreateApp(t.Context(), machinesapi.CreateApp{Name: "vault", Org: "personal"}); err != nil {
			t.Fatal(err)
		}
		if _, err := api.Secrets("vault").Set(t.Context(), "PASSWORD", value); err != nil {
			t.Fatal(err)
		}
		made, err := api.Create(t.Context(), "vault", machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
			Image: "host", Init: bourse.Init{Exec: []string{"sh", "-c", `printf %s "$PASSWORD" | sha256sum; exec sleep 600`}},
		}}, "")
		if err != nil {
			t.Fatal(err)
		}
		printed := func(times int) {
			t.Helper()
			var text strings.Builder
			if !servertest.Within(servertest.Timeout, func() bool {
				text.Reset()
				err = api.Logs(t.Context(), "vault", made.Machine.ID, machinesapi.LogQuery{}, func(l machinesapi.LogLine) error {
					text.WriteString(l.Text + "\n")
					return nil
				})
				return err == nil && strings.Count(text.String(), hex.EncodeToString(digest[:])) == times
			}) {
				t.Fatalf("the program printed %q (%v), want the digest of the secret %d times", text.String(), err, times)
			}
		}
		printed(1)
		worker := d.Servers[1]
		if err := syscall.Kill(worker.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		d.Restarted(t, worker.ID, worker.PID)
		if !servertest.Within(servertest.Timeout, func() bool {
			return api.Restart(t.Context(), "vault", made.Machine.ID, machinesapi.RestartMachine{ForceStop: true}, "") == nil
		}) {
			t.Fatal("the restart of the machine failed repeatedly")
		}
		printed(2)

		one := "/v1/apps/vault/machines/" + string(made.Machine.ID)
		for _, path := range []string{
			"/v1/apps/vault", "/v1/apps/vault/secrets", "/v1/apps/vault/secrets/PASSWORD", "/v1/apps/vault/machines", one, one + "/events", one + "/versions", one + "/logs",
			"/v1/machines", "/v1/orders/" + string(made.OrderID), "/v1/workers/" + worker.ID, "/v1/workers/" + worker.ID + "/runs", "/v1/view/health", "/metrics",
		} {
			if strings.Contains(get(t, api, d.API+path), value) {
				t.Errorf("the reply to GET %s contains the secret's value", path)
			}
		}
		searchFor(t, data, value) // search while the cluster is running, too
		if text := d.Printed(t, ""); strings.Contains(text, value) {
			t.Errorf("bourse dev printed the secret's value")
		}
	})
	searchFor(t, data, value)
}

// get returns the body of a reply, which must be successful.
func get(t *testing.T, api *machinesapi.Client, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+api.Token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: status %s, want 200, %v: %s", url, resp.Status, err, text)
	}
	return string(text)
}

// searchFor reports an error for each file below dir that contains the value, either
// verbatim or in base64.
func searchFor(t *testing.T, dir, value string) {
	t.Helper()
	searchForSome(t, dir, value, 5)
}

// searchForSome is like searchFor, but also reports an error if there are fewer than some
// files.
func searchForSome(t *testing.T, dir, value string, some int) {
	t.Helper()
	files, secret := 0, []byte(value)
	coded := []byte(base64.StdEncoding.EncodeToString(secret)[:len(value)]) // without the end, which depends on the data that follows
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // files come and go while servers run
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil //nolint:nilerr // likewise
		}
		files++
		if bytes.Contains(text, secret) || bytes.Contains(text, coded) {
			t.Errorf("file %s contains the secret's value", path)
		}
		return nil
	})
	if err != nil || files < some {
		t.Errorf("only %d files below %s were searched: %v", files, dir, err)
	}
}
