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
)

// EnvAwake is the variable that has the path of a machine's socket.
const EnvAwake = "BOURSE_AWAKE_SOCKET"

// Bounds of what programs may do to their worker.
const (
	awakeConns   = 16 // of one machine at a time
	awakeTimeout = 5 * time.Second
	awakeHeaders = 4 << 10
	socketPath   = 107 // bytes that a socket's path may have
)

// byItself is who holds a machine whose program keeps it awake.
const byItself = "its program"

// Awake serves the sockets through which programs keep their machines awake. Each
// machine has one, with a path that no one can guess: it follows from the machine's
// id and a key, so that a daemon that comes back listens where it did before.
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

// OpenAwake opens the directory of the sockets, which other users may pass through
// and not list. It listens nowhere yet.
func OpenAwake(dir string, tracker *Tracker) (*Awake, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, bourse.Errorf(bourse.CodeInternal, "make the directory of sockets: %w", err)
	}
	name := filepath.Join(dir, "key")
	key, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(key) < sha256.Size {
		key = make([]byte, sha256.Size)
		_, _ = rand.Read(key) // crypto/rand never fails
		if err = os.WriteFile(name+".new", key, 0o600); err == nil {
			err = os.Rename(name+".new", name)
		}
	}
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInternal, "key of the sockets' paths: %w", err)
	}
	a := &Awake{dir: dir, key: key, tracker: tracker, sockets: map[bourse.MachineID]*net.UnixListener{}, paths: map[string]bourse.MachineID{}}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /v1/awake", a.hold)
	mux.HandleFunc("DELETE /v1/awake", a.release)
	a.server = http.Server{Handler: mux, ReadTimeout: awakeTimeout, WriteTimeout: awakeTimeout, MaxHeaderBytes: awakeHeaders}
	a.server.SetKeepAlivesEnabled(false)
	return a, nil
}

// Socket returns the path of a machine's socket; empty when the directory's is too
// long for one.
func (a *Awake) Socket(id bourse.MachineID) string {
	h := hmac.New(sha256.New, a.key)
	h.Write([]byte(id))
	path := filepath.Join(a.dir, hex.EncodeToString(h.Sum(nil)[:12]))
	if len(path) > socketPath {
		return ""
	}
	return path
}

// Listen serves a machine's socket, if it is not served already.
func (a *Awake) Listen(id bourse.MachineID) error {
	path := a.Socket(id)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sockets[id] != nil || a.closed || path == "" {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a daemon before
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // a program of any user; its path is the secret
		return errors.Join(err, l.Close())
	}
	a.sockets[id], a.paths[path] = l, id
	a.serving.Go(func() { _ = a.server.Serve(&fewConns{Listener: l, free: make(chan struct{}, awakeConns)}) })
	return nil
}

// Close serves a machine's socket no more.
func (a *Awake) Close(id bourse.MachineID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.sockets[id]; l != nil {
		_ = l.Close() // and removes it
		delete(a.paths, l.Addr().String())
		delete(a.sockets, id)
	}
}

// Run serves until ctx ends. The sockets stay, for the next daemon.
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

// machine returns whose socket a request came through.
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
	case err != nil || ttl <= 0 || ttl > MostTTL:
		http.Error(w, "invalid ttl: use a time up to "+MostTTL.String()+", such as ttl=5m", http.StatusBadRequest)
	case r.ContentLength != 0:
		http.Error(w, "there is no body to be sent", http.StatusBadRequest)
	default:
		a.tracker.Use(id, byItself, 0, ttl)
		w.WriteHeader(http.StatusNoContent)
	}
}

func (a *Awake) release(w http.ResponseWriter, r *http.Request) {
	if id, ok := a.machine(r); ok {
		a.tracker.Drop(id, byItself)
	}
	w.WriteHeader(http.StatusNoContent)
}

// fewConns accepts so many connections at a time; the others wait in the kernel.
type fewConns struct {
	net.Listener
	free chan struct{}
}

// Accept implements net.Listener. One that waits for a place is freed by the end of
// a connection, which the server bounds in time.
func (l *fewConns) Accept() (net.Conn, error) {
	l.free <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &placed{Conn: c, done: sync.OnceFunc(func() { <-l.free })}, nil
}

type placed struct {
	net.Conn
	done func()
}

func (c *placed) Close() error {
	defer c.done()
	return c.Conn.Close()
}
