package hostile

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// machineVariable is an environment variable that makes this program a machine's web
// server. The server replies with the variable's value.
const machineVariable = "BOURSE_TEST_MACHINE"

func TestMain(m *testing.M) {
	if answer := os.Getenv(machineVariable); answer != "" {
		runMachine(answer)
		return
	}
	os.Exit(servertest.Main(m))
}

// startPair starts a broker and a worker in region gru, and waits until the broker knows
// the worker. args are additional arguments for the worker.
func startPair(t *testing.T, args ...string) (broker, worker *servertest.Server) {
	t.Helper()
	return startPairOf(t, nil, args)
}

// startPairOf is like startPair, with additional arguments for both servers.
func startPairOf(t *testing.T, brokerArgs, workerArgs []string) (broker, worker *servertest.Server) {
	t.Helper()
	broker = servertest.Start(t, "broker", append([]string{"serve", "broker", "--listen", "127.0.0.1:0"}, brokerArgs...)...)
	return broker, startWorker(t, broker, workerArgs...)
}

// startWorker starts a worker in region gru, and waits until the broker knows it.
func startWorker(t *testing.T, broker *servertest.Server, args ...string) *servertest.Server {
	t.Helper()
	worker := servertest.Start(t, "w1", append([]string{
		"serve", "worker", "--region", "gru", "--name", "w1", "--data", filepath.Join(t.TempDir(), "w1"),
		"--cpus", "4", "--memory", "4GiB", "--ephemeral", "--join", broker.Addr,
	}, args...)...)
	api := servertest.Client(t, broker)
	if !servertest.Within(servertest.Timeout, func() bool {
		w, err := api.Worker(t.Context(), "w1")
		return err == nil && w.Status == machinesapi.WorkerOK
	}) {
		t.Fatal("the broker does not know its worker")
	}
	return worker
}

// answer is a reply to a request that was sent with send.
type answer struct {
	status int
	header http.Header
	body   string
}

// send sends a request line, headers and body unchanged, and returns the reply. It only
// adds Content-Length and Connection headers. A regular HTTP client would correct a hostile
// request.
func send(t *testing.T, addr, line string, header []string, body string) answer {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	header = append(header, fmt.Sprintf("Content-Length: %d", len(body)), "Connection: close")
	if _, err := io.WriteString(c, line+" HTTP/1.1\r\n"+strings.Join(header, "\r\n")+"\r\n\r\n"+body); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body) // callers detect missing data
	return answer{resp.StatusCode, resp.Header, string(text)}
}
