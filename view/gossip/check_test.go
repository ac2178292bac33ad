package gossip

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// str encodes a short string.
func str(s string) string { return string([]byte{0xa0 | byte(len(s))}) + s }

// state encodes a push/pull that declares a number of members and a number of bytes after them.
func state(nodes, behind uint32, rest string) []byte {
	b := append([]byte{typePushPull, 0x83}, str("Nodes")+"\xce"...)
	b = binary.BigEndian.AppendUint32(b, nodes)
	b = append(b, str("UserStateLen")+"\xce"...)
	b = binary.BigEndian.AppendUint32(b, behind)
	return append(b, str("Join")+"\xc2"+rest...)
}

var sealedNode = "\x82" + str("Name") + str("w1") + str("Incarnation") + "\x01"

// padded is an encoded member of realistic length.
var padded = "\x82" + str("Name") + "\xda\x00\x40" + strings.Repeat("n", 64) + str("Incarnation") + "\x01"

// TestPacketsThatAreRefused checks that checkPacket refuses packets that would make memberlist
// decompress data, allocate memory for data that has not arrived, or process nested messages.
func TestPacketsThatAreRefused(t *testing.T) {
	ping := "\x00\x82" + str("SeqNo") + "\x01" + str("Node") + str("w1")
	one := func(m string) string { return "\x07\x01" + string([]byte{byte(len(m) >> 8), byte(len(m))}) + m }
	for name, c := range map[string]struct {
		message string
		want    error
	}{
		"a ping":                   {ping, nil},
		"a ping with a checksum":   {"\x0c\x01\x02\x03\x04" + ping, nil},
		"two messages":             {"\x07\x02" + string([]byte{0, byte(len(ping)), 0, 3}) + ping + "\x08hi", nil},
		"a rumor":                  {"\x08\xff\xff\xff", nil},
		"nothing":                  {"", errForm},
		"compressed":               {"\x09\x82" + str("Algo") + "\x00" + str("Buf") + str("x"), errType},
		"compressed in a compound": {one("\x09\x82" + str("Algo") + "\x00" + str("Buf") + str("x")), errType},
		"a compound in a compound": {one(one(ping)), errType},
		"encrypted twice":          {"\x0a" + ping, errType},
		"a push/pull":              {string(state(0, 0, "")), errType},
		"a text of 4 GiB":          {"\x04\x81\xdb\xff\xff\xff\xff", errForm},
		"bytes of 4 GiB":           {"\x04\x81" + str("Meta") + "\xc6\xff\xff\xff\xff", errForm},
		"a list of 4 G":            {"\x04\x81" + str("Meta") + "\xdd\xff\xff\xff\xff", errForm},
		"a map of 4 G":             {"\x04\xdf\xff\xff\xff\xff", errForm},
		"lists in lists":           {"\x04\x81" + str("Meta") + strings.Repeat("\x91", 2000) + "\x01", errForm},
		"trailing bytes":           {ping + "\x00", errForm},
		"a part that is too long":  {"\x07\x01\xff\xff\x08", errForm},
		"an extension":             {"\x04\x81" + str("Meta") + "\xc9\xff\xff\xff\xff\x01", errForm},
	} {
		if got := checkPacket([]byte(c.message)); !errors.Is(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestStreamsThatAreRefused checks that checkStream refuses a push/pull unless it contains the
// members and bytes that it declares.
func TestStreamsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		message []byte
		want    error
	}{
		"two members": {state(2, 0, padded+padded), nil},
		"user state":  {state(1, 3, padded+"abc"), nil},
		"no members":  {state(0, 0, ""), nil},
		"nothing":     {nil, errForm},
		"compressed":  {[]byte("\x09\x82" + str("Algo") + "\x00" + str("Buf") + str("x")), errType},
		"a rumor, which no member sends on a stream": {[]byte("\x08\x81" + str("UserMsgLen") + "\xce\x01\x00\x00\x00"), errType},
		"2³¹ members":                  {state(1<<31, 0, padded), errNodes},
		"a million small members":      {state(1<<20, 0, strings.Repeat("\x80", 1<<20)), errNodes},
		"declares one member too many": {state(2, 0, padded), errForm},
		"2³¹ bytes behind":             {state(0, 1<<31, "x"), errNodes},
		"declares too few members":     {state(0, 0, sealedNode), errForm},
		"a negative number":            {[]byte("\x06\x83" + str("Nodes") + "\xff" + str("UserStateLen") + "\x00" + str("Join") + "\xc2"), errForm},
		"a number twice":               {[]byte("\x06\x83" + str("Nodes") + "\x00" + str("Nodes") + "\x00" + str("Join") + "\xc2"), errForm},
		"a number as a text":           {[]byte("\x06\x83" + str("Nodes") + str("9") + str("UserStateLen") + "\x00" + str("Join") + "\xc2"), errForm},
	} {
		if got := checkStream(c.message); !errors.Is(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// FuzzCheck checks that a message that passes is complete: if its last byte is removed, it must
// not pass. So no valid message declares more data than it contains.
func FuzzCheck(f *testing.F) {
	f.Add([]byte("\x00\x82"+str("SeqNo")+"\x01"+str("Node")+str("w1")), false)
	f.Add([]byte("\x07\x02\x00\x02\x00\x03\x05\x80\x08hi"), false)
	f.Add([]byte("\x04\x81"+str("Vsn")+"\x96\x01\x05\x02\x02\x05\x04"), false)
	f.Add(state(1, 0, padded), true)
	f.Add(state(1<<31, 1<<31, padded), true)
	f.Fuzz(func(t *testing.T, m []byte, stream bool) {
		check := checkPacket
		if stream {
			check = checkStream
		}
		if check(m) != nil || !stream && (m[0] == typeUser || m[0] == typeSum || m[0] == typeCompound) {
			return // a rumor of any length is complete
		}
		for n := range m {
			if check(m[:n]) == nil {
				t.Fatalf("the first %d bytes of %x are also accepted", n, m)
			}
		}
		if stream && m[0] == typePushPull {
			h, rest, ok := readHeader(m[1:])
			if !ok || h.nodes*minNode > uint64(len(rest)) || h.state > uint64(len(rest)) {
				t.Fatalf("%x declares %+v", m, h)
			}
		}
	})
}
