package bourse

import (
	"fmt"
	"io"
	"log/slog"
)

// AppKeys are the keys of one app's secrets, of AppKeySize bytes each: package
// seal makes them of a broker's keys, and opens values with them. A broker sends
// them to the workers that it has run the app's machines.
type AppKeys []byte

// AppKeySize is the length of one of AppKeys, and MaxAppKeys how many there are at
// most.
const (
	AppKeySize = 32
	MaxAppKeys = 64
)

// Validate reports CodeInvalid for what is not whole keys, and for too many.
func (k AppKeys) Validate() error {
	if len(k)%AppKeySize != 0 || len(k) > MaxAppKeys*AppKeySize {
		return Errorf(CodeInvalid, "%d bytes are not the keys of an app's secrets", len(k))
	}
	return nil
}

const hiddenKeys = "(keys)"

// Format implements fmt.Formatter: no message shows keys.
func (k AppKeys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hiddenKeys) }

// LogValue implements slog.LogValuer: no log shows keys.
func (k AppKeys) LogValue() slog.Value { return slog.StringValue(hiddenKeys) }

// MarshalJSON implements json.Marshaler: no JSON shows keys. What servers send one
// another and keep is CBOR.
func (k AppKeys) MarshalJSON() ([]byte, error) { return []byte(`"` + hiddenKeys + `"`), nil }
