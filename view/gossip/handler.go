package gossip

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
)

// Handler serves what the other members' Replicators ask, under /view/. It is
// for servers of the cluster only, like the rest of a server's internal API.
func (r *Replicator) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, e := range []struct {
		method, path string
		serve        http.HandlerFunc
	}{
		{http.MethodPost, pathDigest, r.serveDigest},
		{http.MethodPost, pathPull, r.servePull},
		{http.MethodPost, pathPush, r.servePush},
		{http.MethodGet, pathSnapshot, r.serveSnapshot},
		{http.MethodGet, pathHealth, r.serveHealth},
	} {
		mux.HandleFunc(e.method+" "+e.path, r.limited(e.path, e.serve))
	}
	return mux
}

// open reads a request's envelope. When it gives false the answer is written.
func (r *Replicator) open(w http.ResponseWriter, req *http.Request, most int64) ([]frame, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, most))
	r.count.httpBytesIn.Add(uint64(len(body)))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			r.refused(bourse.Errorf(bourse.CodeInvalid, "%s with more than %d bytes", req.URL.Path, most), "")
		}
		http.Error(w, "the body is cut short or too long", http.StatusBadRequest)
		return nil, false
	}
	frames, err := openEnvelope(r.check, body)
	if err != nil {
		r.refused(err, "")
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil, false
	}
	return frames, true
}

// sameCluster checks a request without an envelope. When it gives false the
// answer is written.
func (r *Replicator) sameCluster(w http.ResponseWriter, req *http.Request) bool {
	if req.Header.Get(checkHeader) == checkText(r.check) {
		return true
	}
	r.refused(refusedCluster, "")
	http.Error(w, "another cluster or wire version", http.StatusBadRequest)
	return false
}

func (r *Replicator) answer(w http.ResponseWriter, envelope []byte) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(envelope)))
	_, _ = countWriter{w, &r.count.httpBytesOut}.Write(envelope) // a caller that has left is nobody's
}

func (r *Replicator) serveDigest(w http.ResponseWriter, req *http.Request) {
	frames, ok := r.open(w, req, maxDigestBody)
	if !ok {
		return
	}
	envelope := newEnvelope(r.check)
	if !r.knows() { // before the digest is taken: it may know a moment later
		envelope = appendFrame(envelope, kindNew, nil)
	}
	r.answer(w, answerDigest(r.view.Digest(), frames, envelope))
}

// servePull answers with what follows the positions that are asked for, up to
// the caller's budget, and says for which streams only a snapshot helps.
func (r *Replicator) servePull(w http.ResponseWriter, req *http.Request) {
	frames, ok := r.open(w, req, maxPullRequest)
	if !ok {
		return
	}
	budget, wants := readPull(frames)
	envelope := newEnvelope(r.check)
	for _, p := range wants {
		if len(envelope) >= budget {
			envelope = appendFrame(envelope, kindMore, nil)
			break
		}
		encoded, ok := r.view.Since(p, budget-len(envelope))
		if !ok {
			envelope = appendFrame(envelope, kindSnapshot, encodePosition(view.Position{Stream: p.Stream, Seq: r.view.Head(p.Stream)}))
			continue
		}
		for _, tx := range encoded {
			envelope = appendFrame(envelope, kindTransaction, tx)
		}
		if n := uint64(len(encoded)); n > 0 && p.Seq+n < r.view.Head(p.Stream) {
			envelope = appendFrame(envelope, kindMore, nil)
			break
		}
	}
	r.answer(w, envelope)
}

func readPull(frames []frame) (budget int, positions []view.Position) {
	budget = firstChunk
	for _, f := range frames {
		switch f.kind {
		case kindBudget:
			r := reader{rest: f.body}
			if n := r.uvarint(); !r.short {
				budget = int(min(max(n, minChunk), maxChunk))
			}
		case kindWant:
			if p, ok := readPosition(f.body); ok && len(positions) < maxPullStreams {
				positions = append(positions, p)
			}
		default: // of a later release
		}
	}
	return budget, positions
}

// servePush takes transactions and announcements. With transactions it answers
// once they are in the file, with how far their streams are.
func (r *Replicator) servePush(w http.ResponseWriter, req *http.Request) {
	if r.pressed.Load() {
		r.shed(w)
		return
	}
	frames, ok := r.open(w, req, maxPushBody)
	if !ok {
		return
	}
	envelope := newEnvelope(r.check)
	if streams := r.takePushed(frames); len(streams) > 0 {
		ctx, cancel := context.WithTimeout(req.Context(), r.config.Pace.Timeout)
		defer cancel()
		if err := r.view.Flush(ctx); err != nil {
			http.Error(w, "the view does not keep up", http.StatusServiceUnavailable)
			return
		}
		for _, s := range streams {
			envelope = appendFrame(envelope, kindAnnounce, encodePosition(view.Position{Stream: s, Seq: r.view.Head(s)}))
		}
	}
	r.answer(w, envelope)
}

// serveSnapshot streams a snapshot of a stream, or of all shared rows. One that
// fails half-way is cut off: the reader sees that its trailer is missing.
func (r *Replicator) serveSnapshot(w http.ResponseWriter, req *http.Request) {
	if !r.sameCluster(w, req) {
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), snapshotTime*r.config.Pace.Timeout)
	defer cancel()
	out := countWriter{w, &r.count.httpBytesOut}
	query := req.URL.Query()
	var err error
	if query.Get("shared") != "" {
		err = r.view.SharedSnapshot(ctx, out)
	} else {
		epoch, malformed := strconv.ParseUint(query.Get("epoch"), 10, 64)
		s := view.Stream{Site: bourse.WorkerID(query.Get("site")), Epoch: epoch}
		if malformed != nil || s.Site.Validate() != nil {
			http.Error(w, "no such stream", http.StatusBadRequest)
			return
		}
		err = r.view.Snapshot(ctx, s, out)
	}
	switch {
	case err == nil:
	case bourse.CodeOf(err) == bourse.CodeNotFound:
		http.Error(w, "no such stream", http.StatusNotFound) // nothing was written
	default:
		r.config.Log.Info("a snapshot was cut off", slog.Any("err", err))
		panic(http.ErrAbortHandler)
	}
}

func formatEpoch(epoch uint64) string { return strconv.FormatUint(epoch, 10) }
