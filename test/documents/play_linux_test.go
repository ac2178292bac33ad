package documents

import (
	"cmp"
	"regexp"
	"strings"
	"time"
)

// player types the blocks of a document in their order.
type player struct {
	*yard
	at      map[string]*terminal // terminals by the hosts' names in the document
	printed string               // output of the previous block
	last    *terminal            // terminal of the previous block
	line    string               // last line of the previous block
	names   map[string]string    // ids to use for the placeholders in commands
	token   string               // line that sets a client's token, as it was printed
}

func (y *yard) player(at map[string]*terminal) *player {
	return &player{yard: y, at: at, names: map[string]string{}}
}

// play types commands, writes files, and checks the output.
func (p *player) play(blocks []block) {
	p.Helper()
	for i := range blocks {
		b := &blocks[i]
		began := time.Now()
		switch b.verb {
		case "run":
			p.printed = ""
			for _, name := range b.hosts {
				t := p.at[name]
				if t == nil {
					p.Fatalf("%s:%d: host %s does not exist", b.inFile, b.line, name)
				}
				for _, line := range b.commands() {
					p.run(b, t, line)
				}
			}
		case "file":
			for _, name := range b.hosts {
				p.hosts[name].write(p.T, b.path, p.filledIn(b.text))
				p.verify(b, name)
			}
		case "shows":
			p.shows(b)
		}
		if took := time.Since(began); took > time.Second {
			p.Logf("%s:%d took %v", b.inFile, b.line, took.Round(time.Millisecond))
		}
	}
}

var (
	background = regexp.MustCompile(`bourse (serve|dev)\b.*&$`)
	foreground = regexp.MustCompile(`bourse (serve|dev)\b[^&]*$`)
	notYet     = regexp.MustCompile(`unknown region`) // printed before the region's first worker is known
	result     = regexp.MustCompile(`^\d+$`)
	serves     = regexp.MustCompile(`(?m)^\{"id":.*\n|^Bourse is up.*\n`)
	ids        = map[string]*regexp.Regexp{
		"ORDER": regexp.MustCompile(`\b01[0-9A-HJKMNP-TV-Z]{24}\b`), "MACHINE": regexp.MustCompile(`\b[0-9a-f]{14}\b`),
		"TOKEN": regexp.MustCompile(`\bbourse-join-\S+`), "CLUSTER": regexp.MustCompile(`\bbourse-[a-z0-9]{6}\b`),
	}
)

// nothingHappened contains the exit statuses after which a line may be typed again, because
// the broker does not know its cluster yet or no worker could fill the order at that
// moment.
var nothingHappened = map[string]bool{"6": true, "7": true}

// run types a line. If the line starts a server in the foreground, run runs it in the
// background and waits until it serves.
func (p *player) run(b *block, t *terminal, line string) {
	p.Helper()
	command, comment, _ := strings.Cut(line, "  #")
	if command = strings.TrimSpace(command); notTyped[command] != "" {
		return
	}
	want := cmp.Or(ends[command], "0")
	command = p.filledIn(command)
	if strings.HasSuffix(command, "=$(cat …)") {
		command = p.token
	}
	if foreground.MatchString(command) {
		command += " &"
	}
	p.last, p.line = t, command
	printed, status := t.line(command)
	for end := time.Now().Add(30 * time.Second); status != want && (nothingHappened[status] || notYet.MatchString(printed)) && time.Now().Before(end); {
		t.must("sleep 0.2")
		printed, status = t.line(command)
	}
	if status != want {
		p.Fatalf("%s:%d: %s\nexited with status %s, want %s:\n%s%s", b.inFile, b.line, command, status, want, printed, p.logs())
	}
	if background.MatchString(command) && !serves.MatchString(printed) {
		t.await(command, serves)
	}
	if comment = strings.TrimSpace(comment); result.MatchString(comment) && strings.TrimSpace(printed) != comment {
		p.Errorf("%s:%d: %s\nprinted %q, want %s", b.inFile, b.line, command, printed, comment)
	}
	for name, pattern := range ids {
		if id := pattern.FindString(printed); id != "" {
			p.names[name] = id
		}
	}
	p.printed += printed
}

// filledIn replaces the placeholders in a text of the document.
func (p *player) filledIn(text string) string {
	for name, value := range p.names {
		text = regexp.MustCompile(`\b`+name+`\b`).ReplaceAllString(text, value)
	}
	return text
}

// shows checks the output of the previous block. Servers learn about each other with a
// delay, so the last line may be typed again.
func (p *player) shows(b *block) {
	p.Helper()
	var left []string
	for end := time.Now().Add(10 * time.Second); ; {
		if left = b.missing(p.printed); len(left) == 0 {
			return
		}
		if time.Now().After(end) || !strings.Contains(p.line, " list") && !strings.Contains(p.line, " logs") {
			break
		}
		p.last.must("sleep 0.2")
		p.printed, _ = p.last.line(p.line)
	}
	p.Fatalf("%s:%d: %s\ndid not print these lines of the document:\n%s\nit printed:\n%s%s", b.inFile, b.line, p.line, strings.Join(left, "\n"), p.printed, p.logs())
}

// verify checks a unit file with systemd-analyze, if the host has it.
func (p *player) verify(b *block, name string) {
	p.Helper()
	if !strings.HasSuffix(b.path, ".service") {
		return
	}
	if _, status := p.hosts[name].first.line("command -v systemd-analyze"); status != "0" {
		return
	}
	if said, status := p.hosts[name].first.line("systemd-analyze verify " + b.path); status != "0" || strings.Contains(said, b.path) {
		p.Errorf("%s:%d: systemd-analyze reports problems in %s (status %s):\n%s", b.inFile, b.line, b.path, status, said)
	}
}

// logs returns the ends of all servers' logs, for the message of a failed test.
func (p *player) logs() string {
	var out strings.Builder
	for name, h := range p.hosts {
		text, _ := h.first.line("tail -n 15 /run/*.log 2>/dev/null")
		out.WriteString("\n--- servers of " + name + ":\n" + text)
	}
	return out.String()
}
