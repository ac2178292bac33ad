package view

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
)

// maxFileAge is how long a file may go unused before Open replaces it. After that time, the other
// members may have removed tombstones that this file has never received.
const maxFileAge = retention - 24*time.Hour

// openFile opens the configured file, creating it if it does not exist. If the existing file is
// unusable, openFile moves it aside and creates a new one. In a new file, this server begins an
// epoch that is greater than the epoch after.
func (w *writer) openFile(after uint64) error {
	f, st, err := w.tryFile(after)
	if bad, ok := errors.AsType[*schema.UnusableError](err); ok {
		w.view.config.Log.Warn("view's file unusable; replacing it", slog.String("path", w.view.config.Path), slog.Any("err", bad.Cause))
		if err := schema.MoveAside(w.view.config.Path); err != nil {
			return bourse.Errorf(bourse.CodeUnavailable, "move the view's file aside: %w", err)
		}
		f, st, err = w.tryFile(after)
	}
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "%w", err)
	}
	w.file = f
	w.view.mu.Lock()
	w.view.state = st
	w.view.mu.Unlock()
	w.view.pool.Reset(f)
	return nil
}

func (w *writer) tryFile(after uint64) (*schema.File, *state, error) {
	f, err := schema.Open(w.view.config.Path)
	if err != nil {
		return nil, nil, err
	}
	st, err := w.prepare(f, after)
	if err == nil && f.Path != "" {
		f.Info, err = os.Stat(f.Path)
	}
	if err != nil {
		_ = f.Close() // only the error in err matters
		switch failureOf(err) {
		case failDamaged, failBadRow:
			err = &schema.UnusableError{Cause: err}
		case failUnavailable, failKilled:
		}
		return nil, nil, err
	}
	return f, st, nil
}

// prepare configures the connection, checks the file, and reads its state.
func (w *writer) prepare(f *schema.File, after uint64) (*state, error) {
	for _, p := range schema.Pragmas {
		if err := schema.Run(f.Conn, p); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
	}
	if err := schema.Create(f.Conn); err != nil {
		return nil, err
	}
	all, err := schema.Read(f.Conn)
	if err != nil {
		return nil, err
	}
	if w.view.tables == nil {
		w.view.tables = all
	}
	m, err := w.readMeta(f.Conn, after)
	if err != nil {
		return nil, err
	}
	st, err := readState(f.Conn, m.self, m.clock)
	if err != nil {
		return nil, err
	}
	st.signer = w.view.verifier.NewSigner()
	return st, w.settle(f.Conn, st, m)
}
