package hostile

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestSlowBodiesDoNotBlockOtherOrganizations has one organization send more request bodies than a broker can buffer,
// each without its last byte. The broker must still read another organization's large body, and drop bodies of the
// first organization to free memory.
func TestSlowBodiesDoNotBlockOtherOrganizations(t *testing.T) {
	c := startTenants(t)
	c.must(acmeToken, "POST", "/v1/apps", `{"app_name":"shop","org_slug":"acme"}`)
	c.must(rivalToken, "POST", "/v1/apps", `{"app_name":"rival","org_slug":"rival"}`)
	body := `{"config":{"image":"` + strings.Repeat("x", 3<<20) + `"}}`
	send := func(token, app string, n int) net.Conn {
		t.Helper()
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", c.broker.API)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		// Ignore errors: the broker may reply and close the connection before everything is
		// sent.
		_, _ = fmt.Fprintf(conn, "POST /v1/apps/%s/machines HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
			app, c.broker.API, token, len(body), body[:n])
		return conn
	}
	var wg sync.WaitGroup
	slow := make([]net.Conn, 30) // 90 MiB in total; the broker's budget is 64 MiB
	for i := range slow {
		wg.Go(func() { slow[i] = send(acmeToken, "shop", len(body)-1) })
	}
	wg.Wait()
	for range 5 {
		resp, err := http.ReadResponse(bufio.NewReader(send(rivalToken, "rival", len(body))), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusTooManyRequests {
			t.Error("the body of another organization was refused")
		}
	}
	refused := 0
	for _, conn := range slow {
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusTooManyRequests {
				refused++
			}
		}
	}
	if refused == 0 {
		t.Error("the broker buffered all bodies, so the limit was not tested")
	}
}
