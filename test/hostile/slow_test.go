package hostile

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// rss returns the resident memory of a server, in MiB.
func rss(t *testing.T, s *servertest.Server) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Cmd.Process.Pid))
	if err != nil {
		t.Skipf("this host does not report the memory of processes: %v", err)
	}
	_, rest, lives := strings.Cut(string(text), "VmRSS:")
	if !lives {
		t.Fatalf("server %s has exited", s.Name)
	}
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib >> 10
}

const slowPost = "POST /v1/apps/default/machines HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n"

// TestSlowClientsUseNoMemory has 150 clients declare a body of 4 MiB each and send one byte of it. The broker must not
// allocate memory for data that has not arrived, and must disconnect the clients within seconds. A regression held 600
// MiB forever.
func TestSlowClientsUseNoMemory(t *testing.T) {
	broker, _ := startPair(t)
	before := rss(t, broker)
	conns := make([]net.Conn, 150)
	for i := range conns {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", broker.API)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := fmt.Fprintf(c, slowPost+"{", broker.API, credential(t, broker), 4<<20); err != nil {
			t.Fatal(err)
		}
		conns[i] = c
	}
	api := servertest.Client(t, broker)
	if _, _, err := api.Machines(t.Context(), "default", machinesapi.ListMachines{}); err != nil {
		t.Errorf("request of another client at the same time: %v", err)
	}
	if now := rss(t, broker); now > before+60 {
		t.Errorf("one byte from each of 150 clients uses %d MiB of the broker's memory, want at most 60", now-before)
	}
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("a client that stopped sending was not disconnected: %v", err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("a client that stopped sending: status %d, want 400", resp.StatusCode)
		}
	}
}

// TestMemoryForHugeBodiesIsLimited has 150 clients send a body of 4 MiB without its last byte. The body is JSON that
// needs as much memory as possible. The broker must hold no more than its budget, and must refuse the other bodies with
// 429 and Retry-After.
func TestMemoryForHugeBodiesIsLimited(t *testing.T) {
	broker, _ := startPair(t)
	body := `{"config":{"image":"host","metadata":{`
	var b strings.Builder
	for i := 0; b.Len() < 4<<20-len(body)-16; i++ {
		fmt.Fprintf(&b, `"%x":"",`, i)
	}
	body += b.String() + `"z":""}}}`
	var wg sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	peak := 0
	for range 150 {
		wg.Go(func() {
			c, err := new(net.Dialer).DialContext(t.Context(), "tcp", broker.API)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
			// Ignore errors: the broker may reply and close the connection before
			// everything is sent.
			_, _ = fmt.Fprintf(c, slowPost+"%s", broker.API, credential(t, broker), len(body), body[:len(body)-1])
			_, _ = fmt.Fprint(c, body[len(body)-1:])
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			now := rss(t, broker)
			mu.Lock()
			defer mu.Unlock()
			peak = max(peak, now)
			if err != nil {
				statuses[0]++ // the broker reset the connection while data was being sent
				return
			}
			_ = resp.Body.Close()
			statuses[resp.StatusCode]++
			if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "" {
				t.Error("a reply with status 429 has no header Retry-After")
			}
		})
	}
	wg.Wait()
	t.Logf("statuses %v, peak %d MiB", statuses, peak)
	if peak > 512 {
		t.Errorf("600 MiB of hostile JSON use %d MiB in the broker, want at most 512", peak)
	}
	if statuses[http.StatusOK] != 0 || statuses[http.StatusBadRequest] == 0 {
		t.Errorf("statuses %v, want 400 and 429", statuses)
	}
	api := servertest.Client(t, broker)
	if _, _, err := api.Machines(t.Context(), "default", machinesapi.ListMachines{}); err != nil {
		t.Errorf("request of another client afterwards: %v", err)
	}
}

// credential returns the header that authenticates a client.
func credential(tb testing.TB, broker *servertest.Server) string {
	tb.Helper()
	token, err := os.ReadFile(broker.TokenFile)
	if err != nil {
		tb.Fatal(err)
	}
	return "Authorization: Bearer " + strings.TrimSpace(string(token)) + "\r\n"
}
