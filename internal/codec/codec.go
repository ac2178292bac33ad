// Package codec encodes messages between servers and stored records as CBOR (RFC 8949).
// It uses the field names in the JSON tags, so types need no additional code.
//
// Unlike in JSON, byte slices are encoded as byte strings, durations are numbers of nanoseconds,
// and strings need not be valid UTF-8. Times have nanosecond precision.
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

// Marshal returns the encoding of v.
func Marshal(v any) ([]byte, error) { return encoding.Marshal(v) }

// Write writes the encoding of v to w.
func Write(w io.Writer, v any) error { return encoding.NewEncoder(w).Encode(v) }

// Unmarshal decodes b, which must contain exactly one value, into v. It ignores fields that v does
// not have. Its memory use is proportional to the length of b. Values may be nested up to 32 levels
// deep.
func Unmarshal(b []byte, v any) error { return decoding.Unmarshal(b, v) }

// UnmarshalFirst decodes the first value of b into v and returns the rest of b.
func UnmarshalFirst(b []byte, v any) (rest []byte, err error) { return decoding.UnmarshalFirst(b, v) }
