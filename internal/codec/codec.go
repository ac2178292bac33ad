// Package codec is the form of what servers send one another and keep: CBOR
// (RFC 8949), with the field names of the JSON tags. A type needs no code of its
// own for it, so no field can be forgotten.
//
// Unlike in JSON, bytes are bytes, durations are numbers of nanoseconds, and
// texts need not be valid UTF-8. Times keep their nanoseconds.
package codec

import (
	"io"

	"github.com/fxamacker/cbor/v2"
)

var (
	encoding = must(cbor.EncOptions{
		Time:       cbor.TimeRFC3339Nano,
		NaNConvert: cbor.NaNConvertReject,
		InfConvert: cbor.InfConvertReject,
	}.EncMode())
	decoding = must(cbor.DecOptions{
		FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		UTF8:              cbor.UTF8DecodeInvalid,
		NaN:               cbor.NaNDecodeForbidden,
		Inf:               cbor.InfDecodeForbidden,
	}.DecMode())
)

func must[T any](mode T, err error) T {
	if err != nil {
		panic(err) // the options are constants
	}
	return mode
}

// Marshal returns v encoded.
func Marshal(v any) ([]byte, error) { return encoding.Marshal(v) }

// Write writes v encoded.
func Write(w io.Writer, v any) error { return encoding.NewEncoder(w).Encode(v) }

// Unmarshal reads one value, which must be all of b, into v. Fields that v does
// not have are skipped. For any b it takes memory in proportion to b's
// length, and nests 32 deep at most.
func Unmarshal(b []byte, v any) error { return decoding.Unmarshal(b, v) }

// UnmarshalFirst reads the first value of b into v, and returns what follows
// it.
func UnmarshalFirst(b []byte, v any) (rest []byte, err error) { return decoding.UnmarshalFirst(b, v) }
