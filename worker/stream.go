package worker

import (
	"encoding/json"
	"net/http"

	"github.com/bourse-dev/bourse/fabric"
)

// stream writes values as lines of JSON. The status is sent with the first
// one, so an error before it is still a proper failure.
type stream struct {
	rw    http.ResponseWriter
	lines *json.Encoder
	live  bool // send each line at once
	begun bool
}

func newStream(rw http.ResponseWriter, live bool) *stream {
	return &stream{rw: rw, lines: json.NewEncoder(rw), live: live}
}

func (s *stream) begin() {
	if !s.begun {
		s.begun = true
		s.rw.Header().Set("Content-Type", "application/x-ndjson")
		s.rw.WriteHeader(http.StatusOK)
	}
}

func (s *stream) write(v any) error {
	s.begin()
	if err := s.lines.Encode(v); err != nil {
		return err
	}
	if s.live {
		return http.NewResponseController(s.rw).Flush()
	}
	return nil
}

// end finishes the stream. After lines have been sent an error can only be
// told by breaking the connection off.
func (s *stream) end(err error) {
	switch {
	case err == nil:
		s.begin()
	case !s.begun:
		fabric.WriteFailure(s.rw, err)
	default:
		panic(http.ErrAbortHandler)
	}
}
