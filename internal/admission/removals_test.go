package admission_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

var broker1 = admission.Identity{ID: "b-1", Role: bourse.RoleBroker}

func credentials(t *testing.T, ca *admission.CA, who admission.Identity, at time.Time) *admission.Credentials {
	t.Helper()
	c, err := admission.NewCredentials(ca.Pair().Cert, issue(t, ca, who, at))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRemovedServersAreRefused checks that a removed server can neither connect to
// another server nor accept its connections, until it has a certificate that was issued
// later.
func TestRemovedServersAreRefused(t *testing.T) {
	now := time.Now()
	ca := newCA(t, now)
	worker := credentials(t, ca, worker1, now)
	before, after := credentials(t, ca, broker1, now), credentials(t, ca, broker1, now.Add(2*time.Second))
	removal := map[bourse.WorkerID]time.Time{broker1.ID: now.Add(time.Second)}
	for name, serve := range map[string]func(*admission.Credentials) *tls.Config{
		"servers only": func(c *admission.Credentials) *tls.Config { return c.Server(bourse.ServerRoles()...) },
		"public":       (*admission.Credentials).Public,
	} {
		if err := shake(t, serve(worker), before, worker1.ServerName()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		worker.SetRemoved(removal)
		if shake(t, serve(worker), before, worker1.ServerName()) == nil {
			t.Errorf("%s: a removed server connected", name)
		}
		if err := shake(t, serve(worker), after, worker1.ServerName()); err != nil {
			t.Errorf("%s: connection from a server that has joined again: %v", name, err)
		}
		if shake(t, serve(before), worker, broker1.ServerName()) == nil {
			t.Errorf("%s: a server connected to a removed one", name)
		}
		if err := shake(t, serve(after), worker, broker1.ServerName()); err != nil {
			t.Errorf("%s: connection to a server that has joined again: %v", name, err)
		}
		worker.SetRemoved(nil)
	}
}

// TestRefused checks that Refused predicts whether other servers refuse a new certificate.
func TestRefused(t *testing.T) {
	now := time.Now().Truncate(time.Second).Add(300 * time.Millisecond)
	ca := newCA(t, now)
	worker := credentials(t, ca, worker1, now)
	worker.SetRemoved(map[bourse.WorkerID]time.Time{broker1.ID: now})
	for _, later := range []time.Duration{0, 500 * time.Millisecond, time.Second, time.Minute} {
		at := now.Add(later)
		err := shake(t, worker.Public(), credentials(t, ca, broker1, at), worker1.ServerName())
		if refused := worker.Refused(broker1.ID, at); refused != (err != nil) || refused != (later < time.Second) {
			t.Errorf("certificate issued %s after the removal: Refused returned %v, refused on a connection: %v", later, refused, err)
		}
	}
	if worker.Refused(worker1.ID, now) {
		t.Error("a server that was not removed is refused")
	}
}

// TestConnectionsOfRemovedServersAreClosed checks that a removed server's connections
// are closed, and that another server's connection remains open.
func TestConnectionsOfRemovedServersAreClosed(t *testing.T) {
	now := time.Now()
	ca := newCA(t, now)
	worker := credentials(t, ca, worker1, now)
	ln := echoServer(t, worker)
	dial := func(who admission.Identity) *tls.Conn {
		config := credentials(t, ca, who, now).Client()
		config.ServerName = worker1.ServerName()
		c, err := tls.Dial("tcp", ln.Addr().String(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := echo(c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	removed, other := dial(broker1), dial(admission.Identity{ID: "b-2", Role: bourse.RoleBroker})
	closed := dial(broker1)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	if n := worker.SetRemoved(map[bourse.WorkerID]time.Time{broker1.ID: now}); n < 1 || n > 2 { // the server may not have noticed yet that the client has closed the third connection
		t.Errorf("got %d closed connections, want 1 or 2", n)
	}
	if echo(removed) == nil {
		t.Error("the removed server's connection is still open")
	}
	if err := echo(other); err != nil {
		t.Errorf("the other server's connection: %v", err)
	}
}

// copyBack sends back what it receives until the connection is closed.
func copyBack(c net.Conn) {
	defer c.Close()
	_, _ = io.Copy(c, c)
}

// echo sends a byte and reads it back.
func echo(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	_, err := c.Write([]byte("x"))
	if err == nil {
		_, err = io.ReadFull(c, make([]byte, 1))
	}
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return nil // after the timeout, the connection is still open
	}
	return err
}
