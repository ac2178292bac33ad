package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/websocket"

	"github.com/bourse-dev/bourse"
)

// errWrong is in the error chain of a connection on which wrong data was received.
var errWrong = errors.New("wrong data received")

// stayOpen keeps a connection to an app open through a proxy until ctx is done. It
// reconnects if the connection breaks, which happens if the proxy or the daemon of a
// tunnel's worker is killed.
func (s *soak) stayOpen(ctx context.Context, i int, app bourse.AppName, speak func(ctx context.Context, i int, app bourse.AppName) error) {
	for ctx.Err() == nil {
		if err := speak(ctx, i, app); errors.Is(err, errWrong) {
			s.Errorf("long-lived connection to %s through %s: %v", app, s.proxies[i].Name, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(countEvery):
		}
	}
}

func (s *soak) noteOpened() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
}

func (s *soak) noteSaid() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said++
}

// socket sends messages over a WebSocket and checks that they are echoed.
func (s *soak) socket(ctx context.Context, i int, app bourse.AppName) error {
	at := strings.TrimSuffix(strings.TrimPrefix(s.urls[i], "http://"), "/") // not the proxy's Web, which a restart overwrites
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(waitTimeout))
	host := string(app) + ".localhost"
	config, err := websocket.NewConfig("ws://"+host+"/socket", "http://"+host+"/")
	if err != nil {
		return err
	}
	socket, err := websocket.NewClient(config, conn)
	if err != nil {
		return err
	}
	s.noteOpened()
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		_ = conn.SetDeadline(time.Now().Add(waitTimeout))
		want, got := string(app)+" "+strconv.Itoa(n), ""
		if err = websocket.Message.Send(socket, want); err == nil {
			err = websocket.Message.Receive(socket, &got)
		}
		if err == nil && got != want {
			err = fmt.Errorf("%w: received %q as the echo of %q", errWrong, got, want)
		}
		if err != nil {
			return fmt.Errorf("message %d: %w", n, err)
		}
		s.noteSaid()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// events reads server-sent events and checks that none is missing.
func (s *soak) events(ctx context.Context, i int, app bourse.AppName) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silent := time.AfterFunc(waitTimeout, cancel)
	defer silent.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.urls[i]+"counts", nil)
	if err != nil {
		return err
	}
	req.Host = string(app) + ".localhost"
	resp, err := (&http.Client{Transport: s.clients[i].Transport}).Do(req) // this client has no timeout
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return &statusError{resp.StatusCode, resp.Status}
	}
	s.noteOpened()
	n := 0
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		event, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if event != strconv.Itoa(n) {
			return fmt.Errorf("%w: event %s, want %d", errWrong, event, n)
		}
		n++
		silent.Reset(waitTimeout)
		s.noteSaid()
	}
	return fmt.Errorf("after %d events: %w", n, errors.Join(lines.Err(), net.ErrClosed))
}
