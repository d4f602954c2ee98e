package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
)

// commands measures a million addresses through commands, with an index where they
// can have one.
func commands(b *bench) error {
	t := b.report.table("A million addresses, at random, through a command that prints all frames: we take of what the other takes",
		commandColumns...)
	for _, in := range b.inputs {
		contenders, err := b.commandContenders(in)
		if err != nil {
			return err
		}
		if err := measure(contenders, b.longRounds()); err != nil {
			return fmt.Errorf("%s: %w", in.name, err)
		}
		addRows(t, in.name, contenders)
	}
	return nil
}

const million = 1_000_000

// longRounds is how often something is measured that takes so long that it is not
// disturbed by little things.
func (b *bench) longRounds() int { return max(1, b.rounds-2) }

func (b *bench) commandContenders(in *input) ([]*contender, error) {
	list := filepath.Join(b.work, in.name+".million")
	addresses := slices.Repeat(in.uniform, million/len(in.uniform)+1)[:million]
	if err := writeAddresses(list, addresses); err != nil {
		return nil, err
	}
	prepared, err := b.prepare(in)
	if err != nil {
		return nil, err
	}
	prepared.stdin = list
	contenders := b.own(in.raw, "-", prepared)
	for _, p := range b.indexPeers() {
		if p.most > 0 {
			continue
		}
		index := filepath.Join(b.work, in.name+"."+p.name)
		if _, err := (task{args: p.index(index, in.raw)}).run(); err != nil {
			return nil, err
		}
		contenders = append(contenders, task{args: p.command(index), stdin: list, asks: true}.contender(p.name+", from its index"))
	}
	for _, p := range b.directPeers() {
		if p.exact {
			contenders = append(contenders, task{args: p.command(in.raw), stdin: list, asks: true}.contender(p.name))
		}
	}
	return contenders, nil
}

// prepare puts our index into a cache, and returns a task that has this cache.
func (b *bench) prepare(in *input) (task, error) {
	t := task{cache: filepath.Join(b.work, "prepared")}
	t.args = []string{b.hallmark, "index", in.raw}
	_, err := t.run()
	return t, err
}

const ownAddr2line = "hallmark addr2line"

// own returns our two commands, lookup first and addr2line, to be run as t is.
func (b *bench) own(file, address string, t task) []*contender {
	t.asks = true
	t.args = []string{b.hallmark, "lookup", "--virtual", file, address}
	contenders := []*contender{t.contender("hallmark lookup")}
	if exec.Command(b.hallmark, "addr2line", "--help").Run() == nil {
		t.args = []string{b.hallmark, "addr2line", "-a", "-f", "-i", "-e", file}
		if address != "-" {
			t.args = append(t.args, address)
		}
		contenders = append(contenders, t.contender(ownAddr2line))
	}
	return contenders
}

// commandColumns are those of tables that have our two commands.
var commandColumns = []string{
	"input", "", "wall s", "CPU s", "peak MiB", "wall, lookup ÷ theirs", "CPU", "wall, addr2line ÷ theirs", "CPU",
}

// addRows adds the rows of contenders, compared with each of our commands.
func addRows(t *table, name string, contenders []*contender) {
	own := contenders[:1]
	if len(contenders) > 1 && contenders[1].name == ownAddr2line {
		own = contenders[:2]
	}
	for _, c := range contenders {
		row := []any{name, c.name, seconds(c.middle(wall)), seconds(c.middle(cpu)), c.peak() >> 20, "", "", "", ""}
		if !slices.Contains(own, c) {
			for i, o := range own {
				row[5+2*i], row[6+2*i] = versus(o, c, wall), versus(o, c, cpu)
			}
		}
		t.row(row...)
	}
}

// direct measures answers without an index: of one address, and of many.
func direct(b *bench) error {
	one := b.report.table("One address in a new process, without an index: we take of what the other takes",
		commandColumns...)
	many := b.report.table(fmt.Sprintf("%d addresses, without an index: we take of what the other takes", b.addresses),
		commandColumns...)
	prepared := b.report.table("One address in a new process, with the index: beside starting it",
		"input", "", "wall s", "CPU s", "peak MiB")
	for _, in := range b.inputs {
		list := filepath.Join(b.work, in.name+".list")
		if err := writeAddresses(list, in.uniform); err != nil {
			return err
		}
		if err := b.directTables(one, many, in, in.raw, list); err != nil {
			return fmt.Errorf("%s: %w", in.name, err)
		}
		if in.compressed {
			if err := b.directTables(one, many, in, in.shipped, list); err != nil {
				return fmt.Errorf("%s, compressed: %w", in.name, err)
			}
		}
		if err := b.preparedTable(prepared, in); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) directTables(one, many *table, in *input, file, list string) error {
	cold := task{cache: filepath.Join(b.work, "none"), cold: true}
	first := filepath.Join(b.work, "first")
	if err := writeAddresses(first, in.uniform[:1]); err != nil {
		return err
	}
	single := b.own(file, fmt.Sprintf("%#x", in.uniform[0]), cold)
	cold.stdin = list
	all := b.own(file, "-", cold)
	for _, p := range b.directPeers() {
		single = append(single, task{args: p.command(file), stdin: first, asks: true}.contender(p.name))
		if p.exact {
			all = append(all, task{args: p.command(file), stdin: list, asks: true}.contender(p.name))
		}
	}
	if err := measure(single, b.rounds); err != nil {
		return err
	}
	addRows(one, filepath.Base(file), single)
	if err := measure(all, b.longRounds()); err != nil {
		return err
	}
	addRows(many, filepath.Base(file), all)
	return nil
}

// preparedTable compares the first answer from an index with a process that only
// starts.
func (b *bench) preparedTable(t *table, in *input) error {
	prepared, err := b.prepare(in)
	if err != nil {
		return err
	}
	contenders := b.own(in.raw, fmt.Sprintf("%#x", in.uniform[0]), prepared)
	contenders = append(contenders, task{args: []string{b.hallmark, "--version"}}.contender("hallmark --version"))
	if err := measure(contenders, 5*b.rounds); err != nil {
		return err
	}
	for _, c := range contenders {
		t.row(in.name, c.name, seconds(c.middle(wall)), seconds(c.middle(cpu)), c.peak()>>20)
	}
	return nil
}
