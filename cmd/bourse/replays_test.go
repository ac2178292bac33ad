package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
)

// replayOnPort is the main function of a program for machines. If a request has the
// query parameter replay, the program answers with that replay. It answers the replayed
// request with its machine's id, the checksum of the body, and the header
// Fly-Replay-Src.
func replayOnPort() {
	fmt.Fprintln(os.Stderr, http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // in a test
		if replay := r.URL.Query().Get("replay"); replay != "" && r.Header.Get("Fly-Replay-Src") == "" {
			w.Header().Set("Fly-Replay", replay)
			return
		}
		sum := sha256.New()
		_, _ = io.Copy(sum, r.Body)
		_, _ = fmt.Fprintf(w, "%s %x %s", os.Getenv("FLY_MACHINE_ID"), sum.Sum(nil), r.Header.Get("Fly-Replay-Src"))
	})))
	os.Exit(1)
}

// TestReplaysInACluster checks that real servers replay a request with a large body to
// a stopped machine in another region, and to a machine of another app.
func TestReplaysInACluster(t *testing.T) {
	t.Parallel()
	d := startDev(t, "--regions", "gru,mad", "--workers", "1")
	machine := func(app, region string) string {
		var m struct {
			ID string `json:"id"`
		}
		text := d.run(t, "machine", "run", "host", "--app", app, "--region", region, "--port", "80", "--json", "--", "replays")
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		return m.ID
	}
	d.run(t, "app", "create", "web")
	d.run(t, "app", "create", "worker")
	here, there, other := machine("web", "gru"), machine("web", "mad"), machine("worker", "mad")
	d.run(t, "machine", "stop", "--app", "web", there)
	var at string
	for _, s := range d.Servers {
		if len(s.HTTP) > 0 {
			at = s.HTTP[0]
		}
	}
	body := bytes.Repeat([]byte("0123456789abcdef"), 5<<16)
	send := func(query string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+at+"/"+query, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "web.localhost"
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	await(t, "the proxy knows the apps and that one machine is stopped", func() bool {
		status, text := send("?replay=app=worker")
		return status == http.StatusOK && strings.HasPrefix(text, other)
	})
	for query, want := range map[string]string{
		"?replay=region=mad":        there,
		"?replay=instance=" + there: there,
		"?replay=app=worker":        other,
	} {
		status, text := send(query)
		machine, rest, _ := strings.Cut(text, " ")
		sum, src, _ := strings.Cut(rest, " ")
		if status != http.StatusOK || machine != want || sum != fmt.Sprintf("%x", sha256.Sum256(body)) || !strings.HasPrefix(src, "instance=") {
			t.Errorf("%s: %d %s, want machine %s, not %s or %s", query, status, text, want, here, other)
		}
	}
	if status, text := send("?replay=app=none"); status != http.StatusBadGateway || !strings.Contains(text, "to a destination without machines") {
		t.Errorf("missing app: %d %s", status, text)
	}
}
