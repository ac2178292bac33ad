package servertest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/internal/loopback"
	"github.com/bourse-dev/bourse/machinesapi"
)

// devReadyWithin is how long a test waits for "bourse dev". It is longer than "bourse dev" waits
// for its servers, so that the error message of "bourse dev" is printed first.
const devReadyWithin = 4 * time.Minute

// Dev holds the contents of the ready file of a running "bourse dev" cluster.
type Dev struct {
	API     string      `json:"api"`   // http://host:port
	Proxy   string      `json:"proxy"` // http://host:port
	PID     int         `json:"pid"`   // id of the process to signal to stop the cluster
	Data    string      `json:"data"`
	Servers []DevServer `json:"servers"` // the servers, beginning with the broker

	TokenFile string `json:"token_file"` // path of the file with the clients' token

	file    string
	printed string // path of the file with the cluster's standard output
}

// Printed waits until the cluster's standard output contains want, and returns the whole output.
func (d *Dev) Printed(tb testing.TB, want string) string {
	tb.Helper()
	var text []byte
	if !Within(devReadyWithin, func() bool {
		text, _ = os.ReadFile(d.printed) // the file exists
		return strings.Contains(string(text), want)
	}) {
		tb.Fatalf("bourse dev printed %q, want %q in it", text, want)
	}
	return string(text)
}

// Restarted waits until the cluster reports that the server with the given id runs as a process
// other than pid. It returns the server.
func (d *Dev) Restarted(tb testing.TB, id string, pid int) DevServer {
	tb.Helper()
	var s DevServer
	if !Within(devReadyWithin, func() bool {
		var now Dev
		text, err := os.ReadFile(d.file)
		if err != nil || json.Unmarshal(text, &now) != nil {
			return false
		}
		for _, s = range now.Servers {
			if s.ID == id && s.PID != pid {
				return true
			}
		}
		return false
	}) {
		tb.Fatalf("%s was not restarted within %s", id, devReadyWithin)
	}
	return s
}

// DevServer is one server of a dev cluster.
type DevServer struct {
	ID     string `json:"id"`
	Role   string `json:"role"`
	API    string `json:"api"`    // host:port
	Gossip string `json:"gossip"` // host:port
	PID    int    `json:"pid"`
}

// StartDev starts "bourse dev" with these arguments on free ports, and stops it when the test ends.
func StartDev(tb testing.TB, args ...string) *Dev {
	tb.Helper()
	ready := filepath.Join(tb.TempDir(), "dev.ready")
	printed, err := os.Create(filepath.Join(tb.TempDir(), "dev.out"))
	if err != nil {
		tb.Fatal(err)
	}
	defer printed.Close()
	c := exec.Command(Program, append([]string{"dev", "--api", "127.0.0.1:0", "--ready-file", ready}, args...)...) //nolint:noctx // the cleanup stops it when the test ends
	c.Stdout, c.Stderr = printed, tb.Output()
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		tb.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = c.Wait() // the error was printed
		close(ended)
	}()
	tb.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM) // the process may have exited
		<-ended
	})
	d := Dev{file: ready, printed: printed.Name()}
	if !Within(devReadyWithin, func() bool {
		select {
		case <-ended:
			tb.Fatal("bourse dev exited before it was ready")
		default:
		}
		text, err := os.ReadFile(ready)
		return err == nil && json.Unmarshal(text, &d) == nil
	}) {
		tb.Fatalf("bourse dev did not become ready within %s", devReadyWithin)
	}
	return &d
}

// Client returns a client of the cluster's API.
func (d *Dev) Client() *machinesapi.Client {
	token, _ := loopback.Find(os.Getenv, d.API)
	return &machinesapi.Client{BaseURL: d.API, Token: token}
}
