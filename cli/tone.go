package cli

// Tone is a colour for words that a person looks for. It only repeats what the
// words say.
type Tone int

// The tones.
const (
	Plain Tone = iota
	Good       // as it should be
	Bad        // failed, or out of reach
	Busy       // on its way from one to another
	Quiet      // over, or of little interest
)

var tones = map[Tone]string{Good: "32", Bad: "31", Busy: "33", Quiet: "2"}

func (t Tone) paint(text string) string {
	code, ok := tones[t]
	if !ok {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
