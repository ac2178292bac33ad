package warm

import (
	"bytes"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/bourse-dev/bourse"
)

func TestLines(t *testing.T) {
	for line, want := range map[string]bool{
		"CALL 1 01M7Y7 1795262400000 8 application/json":  true,
		"CALL 18446744073709551615 o 0 1048576 -":         true,
		"CALL 2 o 1 0 text/plain; charset=utf-8":          true,
		"CALL 18446744073709551616 o 1 0 -":               false,
		"CALL 0 o 1 0 -":                                  false,
		"CALL 01 o 1 0 -":                                 false,
		"CALL +1 o 1 0 -":                                 false,
		"CALL 1  1 0 -":                                   false,
		"CALL 1 o 1 1048577 -":                            false,
		"CALL 1 o 1 0":                                    false,
		"CALL 1 o 1 0 ":                                   false,
		"CALL 1 o 9223372036854775808 0 -":                false,
		"CALL 1 o 1 0 -\r":                                false,
		"CALL 1 o 1 0 " + strings.Repeat("a", maxField+1): false,
		"call 1 o 1 0 -":                                  false,
		"CANCEL 7":                                        true,
		"CANCEL 0":                                        false,
		"CANCEL 7 ":                                       false,
		"CANCEL ":                                         false,
		"DONE 7 200 2 text/plain":                         true,
		"DONE 7 599 1048576 -":                            true,
		"DONE 7 600 2 -":                                  false,
		"DONE 7 199 2 -":                                  false,
		"DONE 7 200 1048577 -":                            false,
		"DONE 7 200 -1 -":                                 false,
		"DONE 0 200 1 -":                                  false,
		"DONE 7 200":                                      false,
		"":                                                false,
		"HTTP/1.1 400 Bad Request":                        false,
	} {
		parse := parseRequest
		if strings.HasPrefix(line, "DONE") {
			parse = parseReply
		}
		f, err := parse([]byte(line))
		if (err == nil) != want {
			t.Errorf("%q: %v, want it taken: %v", line, err, want)
		}
		if err == nil && string(appendFrame(nil, &f)) != line+"\n" {
			t.Errorf("%q is written as %q", line, appendFrame(nil, &f))
		}
	}
	longest := frame{verb: verbCall, id: 1<<64 - 1, order: bytes.Repeat([]byte("o"), maxField), deadline: 1<<63 - 1, length: bourse.MaxPayload, media: bytes.Repeat([]byte("m"), maxField)}
	if n := len(appendFrame(nil, &longest)); n > maxLine {
		t.Errorf("the longest line has %d bytes, and %d are read", n, maxLine)
	}
}

// A frame that parses is written again as it was, so each has one encoding;
// and how the bytes are split when they arrive makes no difference.
func fuzzFrames(f *testing.F, parse func([]byte) (frame, error), seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		whole, one := newReader(bytes.NewReader(stream)), newReader(iotest.OneByteReader(bytes.NewReader(stream)))
		var again []byte
		for {
			frame, body, err := readFrame(whole, parse)
			_, body1, err1 := readFrame(one, parse)
			if (err == nil) != (err1 == nil) || !bytes.Equal(body, body1) {
				t.Fatalf("read at once: %q, %v; byte by byte: %q, %v", body, err, body1, err1)
			}
			if err != nil {
				break
			}
			again = append(appendFrame(again, &frame), body...)
		}
		if !bytes.HasPrefix(stream, again) {
			t.Fatalf("%q was read, and is written as %q", stream, again)
		}
	})
}

func readFrame(r *reader, parse func([]byte) (frame, error)) (frame, []byte, error) {
	line, err := r.line()
	if err != nil {
		return frame{}, nil, err
	}
	f, err := parse(bytes.Clone(line))
	if err != nil {
		return f, nil, err
	}
	body := make([]byte, f.length)
	return f, body, r.body(body)
}

func FuzzFramesOfWorkers(f *testing.F) {
	fuzzFrames(f, parseRequest, "CALL 1 o 5 2 text/plain\nhiCANCEL 1\nCALL 2 o 5 0 -\n", "CANCEL 18446744073709551615\n", "CALL 1 o 5 3 -\nab", "\n")
}

func FuzzFramesOfPrograms(f *testing.F) {
	fuzzFrames(f, parseReply, "DONE 1 200 2 text/plain\n42DONE 2 404 0 -\n", "DONE 1 200 1048577 -\n", "DONE 1 200 3 -\nab", strings.Repeat("D", maxLine))
}
