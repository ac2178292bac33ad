package proxy

import (
	"context"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/bourse-dev/bourse/internal/servertest"
)

// TestBrowser opens an app's page at app.localhost in a browser, without any setup. It uses HTTP/1.1 and, with TLS,
// HTTP/2, and tests WebSockets and server-sent events.
func TestBrowser(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 1, 1, nil, nil)
	h.create("web", h.order(kindWeb))
	url := "http://" + h.proxies[0].Web[0]
	h.routed(http.DefaultClient, url, "web.localhost")
	for _, c := range []struct{ name, at, protocol string }{
		{"clear", "http://web.localhost:" + portOf(h.proxies[0].Web[0]), "http/1.1"},
		{"secure", "https://web.localhost:" + portOf(h.proxies[0].SecureWeb[0]), "h2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			browse(t, c.at+"/page#"+c.name)
			got := report(t, url, c.name)
			if want := "socket=one,two events=0,1,2 ask=web,true," + c.protocol; got != want {
				t.Errorf("the browser reports\n%s, want\n%s", got, want)
			}
		})
	}
}

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// browse opens a page in a browser, which runs until the test ends.
func browse(t *testing.T, url string) {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("run scripts/need-host to install it: %v", err)
	}
	home := t.TempDir()
	c := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--ignore-certificate-errors", "--user-data-dir="+home, url)
	c.Env = append(c.Environ(), "HOME="+home, "DBUS_SESSION_BUS_ADDRESS=disabled:")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // kill the browser's helper processes as well
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // the browser may have exited
		_ = c.Wait()                                      // returns the kill as an error
		if !servertest.Within(waitTimeout, func() bool { return len(processesOf(home)) == 0 }) {
			t.Errorf("processes %v of the browser have not ended", processesOf(home))
		}
	})
}

// report waits for a page's report.
func report(t *testing.T, url, id string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*waitTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/report/"+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "web.localhost"
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("the browser did not report a result: %v", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("the browser's report: status %s, want 200: %s, %v", resp.Status, text, err)
	}
	return string(text)
}
