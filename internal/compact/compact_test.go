package compact_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/compact"
)

// What is appended is read again, for any value; an empty field takes no space.
func TestFields(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.Byte()).Draw(t, "text")
		n := rapid.Int64().Draw(t, "n")
		at := time.Unix(0, rapid.Int64().Draw(t, "at")).UTC()
		yes := rapid.Bool().Draw(t, "yes")
		b := compact.Bool(compact.Time(compact.Int(compact.Text(nil, 1, text), 2, n), 3, at), 1<<20, yes)
		var gotText []byte
		var gotN int64
		var gotAt time.Time
		var gotYes bool
		for f, err := range compact.Fields(b) {
			if err != nil {
				t.Fatal(err)
			}
			switch f.Number {
			case 1:
				gotText = f.Bytes
			case 2:
				gotN = f.Int
			case 3:
				gotAt = f.Time()
			case 1 << 20:
				gotYes = true
			default:
				t.Fatalf("field %d", f.Number)
			}
		}
		if !bytes.Equal(gotText, text) || gotN != n || !gotAt.Equal(at) || gotYes != yes {
			t.Fatalf("got %q %d %s %t, want %q %d %s %t", gotText, gotN, gotAt, gotYes, text, n, at, yes)
		}
	})
	if b := compact.Bool(compact.Time(compact.Int(compact.Text(nil, 1, ""), 2, 0), 3, time.Time{}), 4, false); len(b) != 0 {
		t.Errorf("nothing takes %d bytes", len(b))
	}
}

// Kinds of fields that this package does not append are skipped: a later release may.
func TestFieldsOfOtherKinds(t *testing.T) {
	b := protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type), 7)
	b = compact.Int(b, 2, 9)
	b = protowire.AppendFixed32(protowire.AppendTag(b, 3, protowire.Fixed32Type), 7)
	b = protowire.AppendGroup(protowire.AppendTag(b, 4, protowire.StartGroupType), 4, compact.Int(nil, 5, 1))
	var got []compact.Field
	for f, err := range compact.Fields(b) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, f)
	}
	if want := []compact.Field{{Number: 2, Int: 9}}; !cmp.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func someResult(t *rapid.T) bourse.TaskResult {
	text := func(name string) string { return rapid.StringN(0, 20, 40).Draw(t, name) }
	return bourse.TaskResult{
		Order: bourse.OrderID(text("order")), Name: text("name"), Worker: bourse.WorkerID(text("worker")), Region: bourse.Region(text("region")),
		Machine: bourse.MachineID(text("machine")), End: bourse.TaskEnd(text("end")), ExitCode: rapid.Int().Draw(t, "exit"),
		Status: rapid.Int().Draw(t, "status"), Type: text("type"), Answer: rapid.SliceOfN(rapid.Byte(), 1, 1000).Draw(t, "answer"), Error: text("error"),
		StartedAt: time.Unix(0, rapid.Int64().Draw(t, "at")).UTC(), Took: time.Duration(rapid.Int64().Draw(t, "took")),
	}
}

// A result and amounts read as they were written.
func TestRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := someResult(t)
		b := compact.TaskResult(nil, &want)
		got, err := compact.ParseTaskResult(b)
		clear(b) // it keeps nothing of it
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
		var takes, taken bourse.Amounts
		for range rapid.IntRange(0, 5).Draw(t, "amounts") {
			name := rapid.StringN(1, 80, 200).Draw(t, "resource")
			takes = append(takes, bourse.Amount{Resource: bourse.Resource(name), Amount: rapid.Int64().Draw(t, "amount")})
		}
		for f, err := range compact.Fields(compact.Amounts(nil, 7, takes)) {
			a, err2 := f.Amount()
			if err != nil || err2 != nil || f.Number != 7 {
				t.Fatalf("field %d: %v, %v", f.Number, err, err2)
			}
			taken = append(taken, a)
		}
		if diff := cmp.Diff(takes, taken); diff != "" {
			t.Fatalf("amounts (-want +got):\n%s", diff)
		}
	})
}

// FuzzTaskResult reads what anyone may have written: it is a result, which
// reads the same after it was written again, or CodeInvalid.
func FuzzTaskResult(f *testing.F) {
	good := compact.TaskResult(nil, &bourse.TaskResult{Order: "o", End: bourse.TaskAnswered, Answer: []byte("42"), StartedAt: time.Unix(1, 2), Took: 3})
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add([]byte{0})
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		r, err := compact.ParseTaskResult(b)
		if !bytes.Equal(before, b) {
			t.Error("the reader has changed what it read")
		}
		if err != nil {
			if bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("code %s", bourse.CodeOf(err))
			}
			return
		}
		again, err := compact.ParseTaskResult(compact.TaskResult(nil, &r))
		if len(r.Answer) == 0 {
			r.Answer = nil
		}
		if diff := cmp.Diff(r, again); err != nil || diff != "" {
			t.Errorf("read again: %v (-first +second):\n%s", err, diff)
		}
	})
}

// What was written once is read by every later release: the numbers of fields
// stay.
func TestNumbersStay(t *testing.T) {
	r := bourse.TaskResult{
		Order: "o", Name: "n", Worker: "w", Region: "r", Machine: "m", End: "e", ExitCode: 1, Status: 2, Type: "t", Answer: []byte("a"),
		Error: "x", StartedAt: time.Unix(0, 3), Took: 4,
	}
	if got, want := fmt.Sprintf("%q", compact.TaskResult(nil, &r)), `"\n\x01o\x12\x01n\x1a\x01w\"\x01r*\x01m2\x01e8\x02@\x04J\x01tR\x01aZ\x01x`+"`"+`\x06h\b"`; got != want {
		t.Errorf("a result is\n%s, want\n%s", got, want)
	}
	if got, want := fmt.Sprintf("%q", compact.Amounts(nil, 1, bourse.Amounts{{Resource: "s", Amount: 1}})), `"\n\x05\n\x01s\x10\x02"`; got != want {
		t.Errorf("an amount is %s, want %s", got, want)
	}
}
