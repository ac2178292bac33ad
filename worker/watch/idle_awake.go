package watch

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/wholefile"
)

// EnvKeepAlive is the name of the environment variable that contains the path of a machine's
// socket. A program uses the socket to keep its machine awake.
const EnvKeepAlive = "BOURSE_AWAKE_SOCKET"

// Limits that protect the worker from misbehaving programs.
const (
	awakeConns   = 16 // maximum number of concurrent connections per machine
	awakeTimeout = 5 * time.Second
	awakeHeaders = 4 << 10
	socketPath   = 107 // maximum length of a socket's path, in bytes
)

// programHolder is the holder name for programs that keep their own machines awake.
const programHolder = "its program"

// Awake serves the sockets through which programs keep their machines awake. Each machine
// has its own socket. The socket's path is derived from the machine's id and a secret
// key, so that others cannot guess it. The key is stored, so that a restarted daemon
// listens on the same paths.
type Awake struct {
	dir     string
	key     []byte
	tracker *Tracker
	server  http.Server
	serving sync.WaitGroup

	mu      sync.Mutex
	closed  bool                                   // guarded by mu
	sockets map[bourse.MachineID]*net.UnixListener // guarded by mu
	paths   map[string]bourse.MachineID            // guarded by mu
}

// OpenAwake opens the directory for the sockets, creating it if it does not exist. Other users
// cannot list the directory, but they can access files in it if they know the paths. OpenAwake does
// not listen on any sockets yet.
func OpenAwake(dir string, tracker *Tracker) (*Awake, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, bourse.Errorf(bourse.CodeInternal, "create the socket directory: %w", err)
	}
	name := filepath.Join(dir, "key")
	key, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(key) < sha256.Size {
		key = make([]byte, sha256.Size)
		_, _ = rand.Read(key) // crypto/rand never fails
		err = wholefile.Write(name, key, 0o600)
	}
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInternal, "read or create the key for socket paths: %w", err)
	}
	a := &Awake{dir: dir, key: key, tracker: tracker, sockets: map[bourse.MachineID]*net.UnixListener{}, paths: map[string]bourse.MachineID{}}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /v1/awake", a.hold)
	mux.HandleFunc("DELETE /v1/awake", a.release)
	a.server = http.Server{Handler: mux, ReadTimeout: awakeTimeout, WriteTimeout: awakeTimeout, MaxHeaderBytes: awakeHeaders}
	a.server.SetKeepAlivesEnabled(false)
	return a, nil
}

// Socket returns the path of a machine's socket, or "" if the path would be too long.
func (a *Awake) Socket(id bourse.MachineID) string {
	h := hmac.New(sha256.New, a.key)
	h.Write([]byte(id))
	path := filepath.Join(a.dir, hex.EncodeToString(h.Sum(nil)[:12]))
	if len(path) > socketPath {
		return ""
	}
	return path
}

// Listen starts serving a machine's socket. It does nothing if the socket is already served.
func (a *Awake) Listen(id bourse.MachineID) error {
	path := a.Socket(id)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sockets[id] != nil || a.closed || path == "" {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // left behind by an earlier daemon
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // programs may run as any user, and the path is secret
		return errors.Join(err, l.Close())
	}
	a.sockets[id], a.paths[path] = l, id
	a.serving.Go(func() { _ = a.server.Serve(&connLimiter{Listener: l, free: make(chan struct{}, awakeConns)}) })
	return nil
}

// Close stops serving a machine's socket, and removes it.
func (a *Awake) Close(id bourse.MachineID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.sockets[id]; l != nil {
		_ = l.Close() // this also removes the socket
		delete(a.paths, l.Addr().String())
		delete(a.sockets, id)
	}
}

// Run serves the sockets until ctx is done. It does not remove the socket files, because
// the next daemon uses the same paths.
func (a *Awake) Run(ctx context.Context) error {
	<-ctx.Done()
	a.mu.Lock()
	a.closed = true
	for _, l := range a.sockets {
		l.SetUnlinkOnClose(false)
		_ = l.Close()
	}
	a.mu.Unlock()
	_ = a.server.Close()
	a.serving.Wait()
	return nil
}

// machine returns the id of the machine on whose socket a request arrived.
func (a *Awake) machine(r *http.Request) (id bourse.MachineID, ok bool) {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return "", false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	id, ok = a.paths[local.String()]
	return id, ok
}

func (a *Awake) hold(w http.ResponseWriter, r *http.Request) {
	ttl, err := time.ParseDuration(r.URL.Query().Get("ttl"))
	switch id, ok := a.machine(r); {
	case !ok:
		http.Error(w, "the machine is gone", http.StatusNotFound)
	case err != nil || ttl <= 0 || ttl > MaxTTL:
		http.Error(w, "invalid ttl: use a time up to "+MaxTTL.String()+", such as ttl=5m", http.StatusBadRequest)
	case r.ContentLength != 0:
		http.Error(w, "the request must not have a body", http.StatusBadRequest)
	default:
		a.tracker.Use(id, programHolder, 0, ttl)
		w.WriteHeader(http.StatusNoContent)
	}
}

func (a *Awake) release(w http.ResponseWriter, r *http.Request) {
	if id, ok := a.machine(r); ok {
		a.tracker.Drop(id, programHolder)
	}
	w.WriteHeader(http.StatusNoContent)
}

// connLimiter is a listener with a limited number of concurrent connections. Connections
// beyond the limit wait in the kernel.
type connLimiter struct {
	net.Listener
	free chan struct{}
}

// Accept implements net.Listener. If there are too many connections, it waits until one
// is closed. The server limits how long a connection may stay open.
func (l *connLimiter) Accept() (net.Conn, error) {
	l.free <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &limitedConn{Conn: c, done: sync.OnceFunc(func() { <-l.free })}, nil
}

type limitedConn struct {
	net.Conn
	done func()
}

func (c *limitedConn) Close() error {
	defer c.done()
	return c.Conn.Close()
}
