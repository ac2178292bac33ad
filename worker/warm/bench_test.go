package warm_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/worker/warm"
)

// BenchmarkCall is a call as a worker makes it, of a program that is a process
// of its own and answers what it is sent: over HTTP and over frames, by so many
// callers at once. us/op is of the clock, the others of the processors.
func BenchmarkCall(b *testing.B) {
	for _, protocol := range []string{"http", "frames"} {
		for _, callers := range []int{1, 16} {
			b.Run(fmt.Sprintf("protocol=%s/callers=%d", protocol, callers), func(b *testing.B) { benchCall(b, protocol, callers) })
		}
	}
}

func benchCall(b *testing.B, protocol string, callers int) {
	program := startProgram(b, protocol)
	call := program.calls(b, protocol)
	b.ReportAllocs()
	b.ResetTimer()
	before, began := cpu(syscall.RUSAGE_SELF), time.Now()
	var left atomic.Int64
	left.Store(int64(b.N))
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				if err := call(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	took, own := time.Since(began), cpu(syscall.RUSAGE_SELF)-before
	b.StopTimer()
	n := float64(b.N) * 1e3
	b.ReportMetric(float64(took)/n, "us/op")
	b.ReportMetric(float64(own)/n, "worker-cpu-us/op")
	b.ReportMetric(float64(program.stop(b))/n, "program-cpu-us/op")
}

func cpu(who int) time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(who, &u) // cannot fail with these arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// echoProgram is the test binary itself, as a program.
type echoProgram struct {
	cmd     *exec.Cmd
	in      io.Closer
	address string
}

const echoEnv = "BOURSE_TEST_ECHO"

func startProgram(b *testing.B, protocol string) *echoProgram {
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), echoEnv+"="+protocol), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	line := make([]byte, 64)
	n, err := out.Read(line)
	if err != nil {
		b.Fatal(err)
	}
	return &echoProgram{cmd: cmd, in: in, address: strings.TrimSpace(string(line[:n]))}
}

// stop ends the program and returns the processor time that it took.
func (p *echoProgram) stop(b *testing.B) time.Duration {
	_ = p.in.Close()
	if err := p.cmd.Wait(); err != nil {
		b.Error(err)
	}
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

var benchPayload = []byte(`{"N":41}`)

// calls returns a function that makes one call.
func (p *echoProgram) calls(b *testing.B, protocol string) func() error {
	if protocol == "frames" {
		conn, err := net.Dial("tcp", p.address)
		if err != nil {
			b.Fatal(err)
		}
		c := warm.NewConn(conn, 0)
		b.Cleanup(c.Close)
		return func() error {
			a, err := c.Call(b.Context(), &warm.Call{Order: "01M7Y71X6AS59JBN7QNQFH8DEW", Deadline: time.Now().Add(10 * time.Second), Payload: benchPayload})
			if err == nil && !bytes.Equal(a.Body, benchPayload) {
				err = fmt.Errorf("answer %q", a.Body)
			}
			return err
		}
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true}
	b.Cleanup(transport.CloseIdleConnections)
	return func() error {
		deadline := time.Now().Add(10 * time.Second)
		ctx, cancel := context.WithDeadline(b.Context(), deadline)
		defer cancel()
		req := (&http.Request{
			Method: http.MethodPost, URL: &url.URL{Scheme: "http", Host: p.address, Path: "/"}, Host: p.address,
			Header: http.Header{
				"Bourse-Order-Id": {"01M7Y71X6AS59JBN7QNQFH8DEW"}, "Bourse-Deadline": {deadline.Format(time.RFC3339Nano)}, "User-Agent": {"bourse"},
			},
			ContentLength: int64(len(benchPayload)), Body: io.NopCloser(bytes.NewReader(benchPayload)),
		}).WithContext(ctx)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err == nil && !bytes.Equal(answer, benchPayload) {
			err = fmt.Errorf("answer %q", answer)
		}
		return err
	}
}

// echo is the program: it answers what it is sent until its input ends.
func echo(protocol string) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		stop()
	}()
	fmt.Fprintln(os.Stdout, ln.Addr())
	if protocol == "frames" {
		return warm.Serve(ctx, ln, 0, func(_ context.Context, c *warm.Call) warm.Answer { return warm.Answer{Body: c.Payload} })
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	})}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	_ = server.Serve(ln) // it is closed
	return nil
}
