package replication

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// server serves requests from other members' Replicators.
type server struct{ r *Replicator }

// Handler returns the handler for requests from other members' Replicators. The requests' paths
// begin with /view/. Like the rest of a server's internal API, the handler must be accessible only
// to servers of the cluster.
func (r *Replicator) Handler() http.Handler {
	s := &server{r}
	mux := http.NewServeMux()
	for _, e := range []struct {
		method, path string
		serve        http.HandlerFunc
	}{
		{http.MethodPost, pathDigest, s.serveDigest},
		{http.MethodPost, pathPull, s.servePull},
		{http.MethodPost, pathPush, s.servePush},
		{http.MethodGet, pathSnapshot, s.serveSnapshot},
		{http.MethodGet, pathHealth, s.serveHealth},
	} {
		mux.HandleFunc(e.method+" "+e.path, s.limited(e.path, e.serve))
	}
	return mux
}

// open reads a request's envelope and returns its frames. If it returns false, it has already
// written an error response.
func (s *server) open(w http.ResponseWriter, req *http.Request, limit int64) ([]frame, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, limit))
	s.r.count.httpBytesIn.Add(uint64(len(body)))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			s.r.refusals.add(bourse.Errorf(bourse.CodeInvalid, "request to %s has more than %d bytes", req.URL.Path, limit), "")
		}
		http.Error(w, "the body is truncated or too long", http.StatusBadRequest)
		return nil, false
	}
	frames, err := openEnvelope(s.r.check, body)
	if err != nil {
		s.r.refusals.add(err, "")
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil, false
	}
	return frames, true
}

// sameCluster checks that a request without an envelope comes from the same cluster and uses the
// same wire version. If it returns false, it has already written an error response.
func (s *server) sameCluster(w http.ResponseWriter, req *http.Request) bool {
	if req.Header.Get(checkHeader) == checkText(s.r.check) {
		return true
	}
	s.r.refusals.add(refusedCluster, "")
	http.Error(w, "sent by a server that belongs to another cluster or uses another wire version", http.StatusBadRequest)
	return false
}

func (s *server) answer(w http.ResponseWriter, envelope []byte) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(envelope)))
	_, _ = countWriter{w, &s.r.count.httpBytesOut}.Write(envelope) // the caller may have disconnected
}

func (s *server) serveDigest(w http.ResponseWriter, req *http.Request) {
	frames, ok := s.open(w, req, maxDigestBody)
	if !ok {
		return
	}
	envelope := newEnvelope(s.r.check)
	if !s.r.knowsCluster() { // check this before computing the digest, because the server may learn its cluster in between
		envelope = appendFrame(envelope, kindNew, nil)
	}
	s.answer(w, answerDigest(s.r.view.Digest(), frames, envelope))
}

// servePull responds with the transactions that follow the given positions, up to the size that the
// caller has requested. The response also lists the streams for which the caller needs a snapshot.
func (s *server) servePull(w http.ResponseWriter, req *http.Request) {
	frames, ok := s.open(w, req, maxPullRequest)
	if !ok {
		return
	}
	budget, wants := readPull(frames)
	envelope := newEnvelope(s.r.check)
	for _, p := range wants {
		if len(envelope) >= budget {
			envelope = appendFrame(envelope, kindMore, nil)
			break
		}
		encoded, ok := s.r.view.Since(p, budget-len(envelope))
		if !ok {
			envelope = appendFrame(envelope, kindSnapshot, encodePosition(wire.Position{Stream: p.Stream, Seq: s.r.view.Head(p.Stream)}))
			continue
		}
		for _, tx := range encoded {
			envelope = appendFrame(envelope, kindTransaction, tx)
		}
		if n := uint64(len(encoded)); n > 0 && p.Seq+n < s.r.view.Head(p.Stream) {
			envelope = appendFrame(envelope, kindMore, nil)
			break
		}
	}
	s.answer(w, envelope)
}

func readPull(frames []frame) (budget int, positions []wire.Position) {
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
		default: // a frame that a later release may add
		}
	}
	return budget, positions
}

// servePush processes transactions and announcements that another member has sent. If there are
// transactions, it waits until they are in the view's file, and responds with the heads of their
// streams.
func (s *server) servePush(w http.ResponseWriter, req *http.Request) {
	if s.r.view.Overloaded() {
		s.refuseBusy(w)
		return
	}
	frames, ok := s.open(w, req, maxPushBody)
	if !ok {
		return
	}
	envelope := newEnvelope(s.r.check)
	if streams := s.r.takePushed(frames); len(streams) > 0 {
		ctx, cancel := context.WithTimeout(req.Context(), s.r.config.Timing.Timeout)
		defer cancel()
		if err := s.r.view.Flush(ctx); err != nil {
			http.Error(w, "the view is overloaded", http.StatusServiceUnavailable)
			return
		}
		for _, of := range streams {
			envelope = appendFrame(envelope, kindAnnounce, encodePosition(wire.Position{Stream: of, Seq: s.r.view.Head(of)}))
		}
	}
	s.answer(w, envelope)
}

// serveSnapshot sends a snapshot of one stream, or of all shared rows. If it fails midway, it
// aborts the connection, so that the client notices that the snapshot is incomplete.
func (s *server) serveSnapshot(w http.ResponseWriter, req *http.Request) {
	if !s.sameCluster(w, req) {
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), snapshotTime*s.r.config.Timing.Timeout)
	defer cancel()
	out := countWriter{w, &s.r.count.httpBytesOut}
	query := req.URL.Query()
	var err error
	if query.Get("shared") != "" {
		err = s.r.view.SharedSnapshot(ctx, out)
	} else {
		epoch, malformed := strconv.ParseUint(query.Get("epoch"), 10, 64)
		of := wire.Stream{Site: bourse.WorkerID(query.Get("site")), Epoch: epoch}
		if malformed != nil || of.Site.Validate() != nil {
			http.Error(w, "no such stream", http.StatusBadRequest)
			return
		}
		err = s.r.view.Snapshot(ctx, of, out)
	}
	switch {
	case err == nil:
	case bourse.CodeOf(err) == bourse.CodeNotFound:
		http.Error(w, "no such stream", http.StatusNotFound) // nothing has been written yet
	default:
		s.r.config.Log.Info("send snapshot failed", slog.Any("err", err))
		panic(http.ErrAbortHandler)
	}
}

func formatEpoch(epoch uint64) string { return strconv.FormatUint(epoch, 10) }
