/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Walks the user's part of a stack by the tables of package unwind, which say for each
 * place of a file where the caller's stack and registers are. What a rule means is the
 * same as in unwind.State.Step, and how a stack is walked as in unwind.Walker: where
 * they differ, one of them is wrong.
 *
 * The tables of all files lie in a pool of pieces that user space writes. A file that has
 * none there ends the walk; user space then finishes it: see copy.h. */
#ifndef HALLMARK_UNWIND_H
#define HALLMARK_UNWIND_H

#include "frames.h"
#include "sent.h"
#include "task.h"

/* Whether stacks are walked by tables. */
const volatile bool unwinding = false;

/* Whether every sample is sent from its innermost frame on, and counted nevertheless. */
const volatile bool copy_all = false;

/* A piece of the pool. Behind it is again how the next one begins, so that what is read at
 * a time (the rows of a granule at most) lies behind one pointer. */
#define CHUNK (1 << 20)
#define CHUNK_TAIL 4096

struct chunk {
	__u8 bytes[CHUNK + CHUNK_TAIL];
};

struct chunk_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct chunk));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1); /* the loader sets it */
	__type(key, __u32);
	__array(values, struct chunk_map);
} chunks SEC(".maps");

/* By the serial number of the file. Only user space changes it, and nothing that was
 * taken out, here or in the pool, becomes something else before the programs that may have
 * seen it are through. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* the loader sets it */
	__type(key, __u32);
	__type(value, struct unwind_table);
} unwind_tables SEC(".maps");

/* unwind_pool_at returns CHUNK_TAIL bytes of the pool, or NULL. */
static __always_inline void *unwind_pool_at(__u32 position)
{
	__u32 number = position / CHUNK, zero = 0;
	struct chunk *c;
	void *map = bpf_map_lookup_elem(&chunks, &number);

	if (!map)
		return NULL;
	c = bpf_map_lookup_elem(map, &zero);
	return c ? &c->bytes[position % CHUNK] : NULL;
}

/* How frames in a place are unwound, or how a stack ends there. */
enum how { BY_TABLE, BY_FP, ABSENT, UNAVAILABLE, NOT_IDENTIFIED, OUT_OF_MAP, OUT_OF_CODE };

/* Kinds of rules: unwind.Kind has the same numbers. */
enum unwind_kind { RULE_NONE, RULE_OUTERMOST, RULE_REG, RULE_DEREF, RULE_PLT, RULE_SIGNAL, RULE_FP, RULE_GOROUTINE };

#define WHY_GAP 0
#define RULE_SAME (-128)
#define RULE_UNKNOWN 127

/* Flags of rules: unwind.SavedAtRegister and those after it. */
enum unwind_rule_flags { SAVED_AT_REGISTER = 1, OTHER_STACK = 2, INTERRUPTED = 4, RETURN_AT_REGISTER = 8, SAVED_AT_FRAME_POINTER = 16 };

#define STACK_POINTER (IS_X86 ? 7 : 31)
#define FRAME_POINTER (IS_X86 ? 6 : 29)

static __always_inline bool unwind_knows(struct unwinding *u, __u32 reg)
{
	return reg < DWARF_REGISTERS && u->known >> reg & 1;
}

static __always_inline void unwind_set_register(struct unwinding *u, __u32 reg, __u64 value)
{
	u->registers[reg & (DWARF_REGISTERS - 1)] = value;
	u->known |= 1U << reg;
}

static __always_inline bool unwind_read_words(__u64 *to, __u32 n, __u64 from)
{
	return !bpf_probe_read_user(to, n * sizeof(*to), (void *)from);
}

/* unwind_address returns the address that says where a frame is in its code. */
static __always_inline __u64 unwind_address(struct unwinding *u) { return u->ip - !u->exact; }

/* unwind_rows_until returns how many of n sorted bytes, at most 256, are not above low. It has
 * no branches, neither for the processor, as which way they go cannot be foreseen, nor for
 * the verifier, which would follow each: both conditions of a step are signs. */
static __always_inline __u32 unwind_rows_until(const __u8 *lows, __u32 n, __u8 low)
{
	__u64 at = 0;

#define SEARCH_STEP(step)                                                                      \
	do {                                                                                   \
		__s64 within = (__s64)at + (step) - n - 1;                                     \
		__s64 above = (__s64)lows[at + (step) - 1] - low - 1;                          \
		__u64 by = (step) & (within & above) >> 63;                                    \
                                                                                               \
		barrier_var(by); /* or it is added by an OR, of which old verifiers know nothing */ \
		at += by;                                                                      \
	} while (0)
	if (n > 31) {
		SEARCH_STEP(256);
		SEARCH_STEP(128);
		SEARCH_STEP(64);
		SEARCH_STEP(32);
	}
	SEARCH_STEP(16);
	SEARCH_STEP(8);
	SEARCH_STEP(4);
	SEARCH_STEP(2);
	SEARCH_STEP(1);
	return at;
}

/* unwind_find_rule finds the rule of a frame in a place with a table, into u->rule. Without one
 * it is that which says nothing. */
static __always_inline void unwind_find_rule(struct unwinding *u, struct unwind_place *p)
{
	__u64 off = unwind_address(u) - p->base - p->table.base, granule = off >> 8;
	__u32 first, n, row, at;
	__u64 *to = (void *)&u->rule, *rule;
	__u32 *directory;
	__u8 *rows;

	to[0] = to[1] = 0;
	if (granule >= p->table.granules) /* also before the first one */
		return;
	directory = unwind_pool_at(p->table.directory + 4 * granule);
	if (!directory)
		return;
	first = directory[0];
	n = directory[1] - first;
	/* The block of the granule, and before it the number of the last rule of the one before. Before the
	 * first one is 0. */
	rows = unwind_pool_at(p->table.rows + 3 * first - 2);
	if (!rows)
		return;
	row = unwind_rows_until(rows + 2, n, off);
	at = row ? (n + 2 * row) & 1023 : 0;
	rule = unwind_pool_at(p->table.rules + 16 * *(__u16 *)(rows + at)); /* at any address: both processors can */
	if (!rule)
		return;
	to[0] = rule[0];
	to[1] = rule[1];
}

/* unwind_code_address returns the address that a return address stands for: arm64 signs them in
 * the bits above those that addresses of programs have. */
static __always_inline __u64 unwind_code_address(__u64 address)
{
	__u64 size = 1ULL << 48;
	struct mm_struct *mm;

	if (IS_X86 || address >> 55 & 1)
		return address;
	mm = task_current_mm();
	if (bpf_core_field_exists(mm->task_size))
		size = GET(mm, task_size);
	return address & (size - 1);
}

/* unwind_enter_caller makes a return address the place of the frame. Nothing is where stacks begin,
 * neither an address to return to nor a frame pointer. */
static __always_inline enum stack_end unwind_enter_caller(struct unwinding *u, __u64 ra, enum unwind_method method)
{
	u->ip = unwind_code_address(ra);
	u->exact = false;
	u->method = method;
	if (u->ip)
		return END_NOT_TOLD;
	return unwind_knows(u, FRAME_POINTER) && !u->registers[FRAME_POINTER] ? END_COMPLETE : END_BAD_FRAME;
}

/* unwind_step_fp goes to the caller of code that keeps frame pointers. */
static __always_inline enum stack_end unwind_step_fp(struct unwinding *u)
{
	__u64 sp = u->registers[STACK_POINTER], fp = u->registers[FRAME_POINTER];

	if (!unwind_knows(u, STACK_POINTER) || !unwind_knows(u, FRAME_POINTER))
		return END_REGISTER_LOST;
	if (!fp)
		return END_COMPLETE;
	if (fp < sp || fp % 8)
		return END_BAD_FRAME;
	if (!unwind_read_words(u->words, 2, fp))
		return END_UNREADABLE;
	u->known = 0;
	unwind_set_register(u, FRAME_POINTER, u->words[0]);
	unwind_set_register(u, STACK_POINTER, fp + 16);
	return unwind_enter_caller(u, u->words[1], METHOD_FP);
}

/* unwind_step_signal goes to what a signal interrupted. Its registers lie in struct sigcontext
 * of the kernel's struct rt_sigframe (arch/x86, arch/arm64: kernel/signal.c). */
static __always_inline enum stack_end unwind_step_signal(struct unwinding *u)
{
	static const __u8 order[] = {8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7};
	__u64 frame = u->registers[STACK_POINTER] + u->rule.offset;

	if (!unwind_knows(u, STACK_POINTER))
		return END_REGISTER_LOST;
	if (!unwind_read_words(u->words, IS_X86 ? 17 : 33, frame + (IS_X86 ? 40 : 312)))
		return END_UNREADABLE;
	if (IS_X86) {
		_Pragma("unroll") for (int i = 0; i < 16; i++)
			u->registers[order[i]] = u->words[i];
		u->known = 0xffff;
		u->ip = u->words[16];
	} else {
		_Pragma("unroll") for (int i = 0; i < 32; i++)
			u->registers[i] = u->words[i];
		u->known = ~0U;
		u->ip = u->words[32];
	}
	u->exact = true;
	u->method = METHOD_SIGNAL;
	return u->ip ? END_NOT_TOLD : END_NOT_MAPPED; /* it called a null pointer */
}

/* unwind_saved_register returns the register of which rule->saved[i] says where it is. */
static __always_inline __u32 unwind_saved_register(int i)
{
	if (!IS_X86)
		return 29;
	return i == 0 ? 3 : i == 1 ? 6 : 10 + i;
}

/* unwind_below returns how many words a place of a rule is below the CFA. */
static __always_inline __u32 unwind_below(__s8 place) { return (__u8)-place; }

/* unwind_is_near reports whether that is one of the next 8. */
static __always_inline bool unwind_is_near(__s8 place) { return unwind_below(place) - 1 < 8; }

/* unwind_read_near reads the words below base that a rule wants at once, those of registers if
 * they lie there too: most of the time that is all of them, and base the CFA. It returns how
 * many they are, the lowest one first, or 0 if they must be read one by one. */
static __always_inline __u32 unwind_read_near(struct unwinding *u, __u64 base, bool saved)
{
	__u32 n = 0;

	if (unwind_is_near(u->rule.ra))
		n = unwind_below(u->rule.ra);
	if (saved) {
		_Pragma("unroll") for (int i = 0; i < 6; i++)
		{
			__s8 place = u->rule.saved[i];

			if (unwind_is_near(place) && unwind_below(place) > n)
				n = unwind_below(place);
		}
	}
	barrier_var(n); /* so that the verifier sees the next line */
	n &= 15;
	return n && unwind_read_words(u->words, n, base - 8 * n) ? n : 0;
}

/* unwind_near_word returns one of n words that were read so. */
static __always_inline __u64 unwind_near_word(struct unwinding *u, __u32 n, __s8 place)
{
	return u->words[(n - unwind_below(place)) & 7];
}

/* unwind_restore gives a register the value that it has in the caller. What cannot be read is
 * lost: where a function has restored registers and is about to return, rules still name
 * places that are below the stack by then. */
static __always_inline void unwind_restore(struct unwinding *u, __u32 reg, __s8 place, __u64 base, __u32 near)
{
	__u64 value;

	if (place == RULE_SAME)
		return;
	if (place == RULE_UNKNOWN) {
		u->known &= ~(1U << reg);
		return;
	}
	if (near && unwind_is_near(place)) {
		value = unwind_near_word(u, near, place);
	} else if (!unwind_read_words(&value, 1, base + 8 * (__s64)place)) {
		u->known &= ~(1U << reg);
		return;
	}
	unwind_set_register(u, reg, value);
}

/* unwind_find_return returns how a stack ends if the return address of a rule cannot be had. */
static __always_inline enum stack_end unwind_find_return(struct unwinding *u, __u64 base, __u32 near, __u64 *ra)
{
	struct unwind_rule *rule = &u->rule;

	if (rule->ra == RULE_SAME) {
		*ra = u->registers[rule->link & (DWARF_REGISTERS - 1)];
		return unwind_knows(u, rule->link) ? END_NOT_TOLD : END_REGISTER_LOST;
	}
	if (rule->ra == RULE_UNKNOWN)
		return END_REGISTER_LOST;
	if (near && unwind_is_near(rule->ra)) {
		*ra = unwind_near_word(u, near, rule->ra);
		return END_NOT_TOLD;
	}
	return unwind_read_words(ra, 1, base + 8 * (__s64)rule->ra) ? END_NOT_TOLD : END_UNREADABLE;
}

/* unwind_find_cfa returns how a stack ends if the CFA of a rule cannot be had. */
static __always_inline enum stack_end unwind_find_cfa(struct unwinding *u, __u64 *base, __u64 *cfa)
{
	struct unwind_rule *rule = &u->rule;
	__u32 from = rule->kind == RULE_PLT ? STACK_POINTER : rule->reg;

	if (!unwind_knows(u, from))
		return END_REGISTER_LOST;
	*base = u->registers[from & (DWARF_REGISTERS - 1)];
	switch (rule->kind) {
	case RULE_PLT:
		*cfa = *base + 8 + ((__s32)(u->ip & 15) >= rule->offset ? 8 : 0);
		return END_NOT_TOLD;
	case RULE_DEREF:
		if (!unwind_read_words(cfa, 1, *base + rule->offset))
			return END_UNREADABLE;
		*cfa += 8 * (__s64)rule->addend;
		return END_NOT_TOLD;
	default:
		*cfa = *base + rule->offset;
		return END_NOT_TOLD;
	}
}

/* unwind_is_above reports whether a caller whose stack is at cfa can be the frame's: calls go down
 * the stack, but what has not pushed anything yet is where its caller is. */
static __always_inline bool unwind_is_above(struct unwinding *u, __u64 cfa)
{
	__u64 sp = u->registers[STACK_POINTER];

	return unwind_knows(u, STACK_POINTER) && (cfa > sp || (u->exact && cfa == sp));
}

/* unwind_find_saved finds what the places of saved registers are relative to, 0 if they are
 * unchanged after all, because the frame pointer is the caller's again. It returns how a
 * stack ends if that cannot be had. */
static __always_inline enum stack_end unwind_find_saved(struct unwinding *u, __u64 base, __u64 cfa, __u64 *from)
{
	__u64 sp = u->registers[STACK_POINTER], fp = u->registers[FRAME_POINTER];
	__u8 flags = u->rule.flags;

	*from = flags & SAVED_AT_REGISTER ? base : cfa;
	if (!(flags & SAVED_AT_FRAME_POINTER))
		return END_NOT_TOLD;
	if (!unwind_knows(u, STACK_POINTER) || !unwind_knows(u, FRAME_POINTER))
		return END_REGISTER_LOST;
	*from = fp < sp || fp >= cfa ? 0 : fp;
	return END_NOT_TOLD;
}

/* unwind_step_call goes to the caller of a function. */
static __always_inline enum stack_end unwind_step_call(struct unwinding *u)
{
	__u64 base = 0, cfa = 0, ra = 0, saved_base, ra_base;
	__u8 flags = u->rule.flags;
	enum stack_end end = unwind_find_cfa(u, &base, &cfa);
	__u32 near;

	if (end)
		return end;
	if (!(flags & OTHER_STACK) && !unwind_is_above(u, cfa))
		return END_BAD_FRAME;
	end = unwind_find_saved(u, base, cfa, &saved_base);
	if (end)
		return end;
	ra_base = flags & RETURN_AT_REGISTER ? base : cfa;
	near = unwind_read_near(u, ra_base, saved_base == ra_base);
	end = unwind_find_return(u, ra_base, near, &ra);
	if (end)
		return end;
	if (saved_base != ra_base)
		near = 0;
	/* All others keep their values: hand-written code knows what its callees leave alone. */
	_Pragma("unroll") for (int i = 0; i < 6; i++)
	{
		if (saved_base && (IS_X86 || !i))
			unwind_restore(u, unwind_saved_register(i), u->rule.saved[i], saved_base, near);
	}
	unwind_set_register(u, STACK_POINTER, cfa);
	if (!IS_X86)
		u->known &= ~(1U << 30); /* the call has written it */
	end = unwind_enter_caller(u, ra, METHOD_CFI);
	u->exact = !!(flags & INTERRUPTED);
	return end;
}

/* unwind_step_goroutine goes from the stack of a scheduler of Go to the goroutine for which it works,
 * and doubts what it reads: see unwind/goroutine.go. Places of the rule are in words. */
#define GOROUTINE_WORDS 16
static __always_inline enum stack_end unwind_step_goroutine(struct unwinding *u)
{
	struct unwind_rule *rule = &u->rule;
	__u64 g0 = u->registers[rule->reg & (DWARF_REGISTERS - 1)], m, g, back;
	__u64 *words = u->words;

	if (!unwind_knows(u, STACK_POINTER) || !unwind_knows(u, rule->reg))
		return END_REGISTER_LOST;
	if (!unwind_read_words(words, GOROUTINE_WORDS, g0))
		return END_UNREADABLE;
	m = words[rule->saved[0] & (GOROUTINE_WORDS - 1)];
	if (words[rule->saved[1] & (GOROUTINE_WORDS - 1)] != u->registers[STACK_POINTER])
		return END_UNSUPPORTED;
	if (!unwind_read_words(&back, 1, m) || !unwind_read_words(&g, 1, m + rule->offset))
		return END_UNREADABLE;
	if (back != g0)
		return END_UNSUPPORTED;
	if (!g)
		return END_COMPLETE;
	if (!unwind_read_words(words, GOROUTINE_WORDS, g))
		return END_UNREADABLE;
	if (words[rule->saved[0] & (GOROUTINE_WORDS - 1)] != m || g == g0)
		return END_UNSUPPORTED;
	u->known = 0;
	unwind_set_register(u, STACK_POINTER, words[rule->saved[1] & (GOROUTINE_WORDS - 1)]);
	unwind_set_register(u, FRAME_POINTER, words[rule->saved[3] & (GOROUTINE_WORDS - 1)]);
	return unwind_enter_caller(u, words[rule->saved[2] & (GOROUTINE_WORDS - 1)], METHOD_CFI);
}

/* unwind_at_entry reports whether a frame has the stack that the process began with: the dynamic
 * linker's first instructions have no call frame information. */
#define ENTRY_SLACK 32
static __always_inline bool unwind_at_entry(struct unwinding *u)
{
	return unwind_knows(u, STACK_POINTER) && u->entry > ENTRY_SLACK &&
	       u->registers[STACK_POINTER] >= u->entry - ENTRY_SLACK;
}

static __always_inline bool unwind_is_in(const struct unwind_place *p, __u64 address)
{
	return address - p->start < p->end - p->start;
}

/* unwind_step_to_caller goes from one frame to its caller's, and returns how the stack ends if
 * it cannot. It is global as maple_find is. */
__noinline int unwind_step_to_caller(struct unwinding *u)
{
	struct unwind_place *p;
	enum stack_end end;

	if (!u || !unwinding)
		return END_NOT_IDENTIFIED;
	p = &u->places[u->at % PLACES];
	if (p->how == BY_TABLE)
		unwind_find_rule(u, p);
	else
		u->rule.kind = RULE_FP;
	if (u->rule.kind == RULE_NONE) {
		if (unwind_at_entry(u))
			return END_COMPLETE;
		if (u->rule.reg != WHY_GAP)
			return END_UNSUPPORTED;
		if (p->table.granules && !(p->table.flags & UNWIND_GAPS_KEEP_FP))
			return END_NO_RULE;
		u->rule.kind = RULE_FP;
	}
	switch (u->rule.kind) {
	case RULE_OUTERMOST:
		return END_COMPLETE;
	case RULE_REG:
	case RULE_DEREF:
	case RULE_PLT:
		return unwind_step_call(u);
	case RULE_SIGNAL:
		/* Nothing called what signal handlers return to: that is executed next. */
		if (unwind_is_in(p, u->ip))
			u->shown = u->ip;
		return unwind_step_signal(u);
	case RULE_GOROUTINE:
		return unwind_step_goroutine(u);
	case RULE_FP:
		end = unwind_step_fp(u);
		/* No stack begins in generated code: the frame pointer is none. */
		return end == END_COMPLETE && p->how == BY_FP ? END_BAD_FRAME : end;
	default:
		return END_UNSUPPORTED;
	}
}

/* unwind_how_of returns how frames in a place are unwound, and finds its table. */
static __always_inline enum how unwind_how_of(struct unwind_place *p)
{
	__u32 serial = p->where;
	struct unwind_table *t;

	switch (p->where >> 32) {
	case FRAME_FILE:
		break;
	case FRAME_VDSO:
		serial = VDSO_SERIAL;
		break;
	case FRAME_GENERATED:
		return BY_FP;
	case FRAME_NOT_MAPPED:
		return OUT_OF_MAP;
	case FRAME_NOT_CODE:
		return OUT_OF_CODE;
	default:
		return NOT_IDENTIFIED;
	}
	t = bpf_map_lookup_elem(&unwind_tables, &serial);
	if (!t)
		return ABSENT;
	if (t->used != table_time)
		t->used = table_time;
	if (t->flags & UNWIND_UNAVAILABLE)
		return UNAVAILABLE;
	p->table = *t;
	return BY_TABLE;
}

/* unwind_end_of returns how a stack ends in a place that is not unwound. */
static __always_inline enum stack_end unwind_end_of(enum how how)
{
	switch (how) {
	case OUT_OF_MAP:
		return END_NOT_MAPPED;
	case OUT_OF_CODE:
		return END_NOT_CODE;
	case NOT_IDENTIFIED:
		return END_NOT_IDENTIFIED;
	default:
		return END_NO_TABLE;
	}
}

/* unwind_look_for looks for the VMA that holds an address, which it leaves with what is to be known
 * of its file in scratch memory. It returns an enum seen. It is global as maple_find is. */
__noinline int unwind_look_for(__u64 address)
{
	struct walk w = {.s = state_scratch(), .task = bpf_get_current_task_btf()};
	struct inode *inode = NULL;
	enum seen seen = MOVED;

	if (!w.s || !unwinding)
		return MOVED;
	w.mm = (__u64)task_current_mm();
	for (int tries = 0; tries < 2 && seen == MOVED; tries++)
		seen = frames_look(&w, address, &w.s->area, &inode);
	w.s->inode = (__u64)inode;
	return seen;
}

/* unwind_find_place finds what is mapped at an address in the current process. */
static __always_inline void unwind_find_place(struct scratch *s, __u64 address, struct unwind_place *p)
{
	struct mm_struct *mm = task_current_mm();
	enum seen seen = unwind_look_for(address);
	struct area *a = &s->area;
	__u64 serial;

	p->start = address;
	p->end = address + 1;
	p->base = 0;
	if (seen != SEEN) {
		p->where = frames_miss(s, seen);
		return;
	}
	if (a->file) {
		serial = serial_of(s, (void *)s->inode);
		if (!serial || serial >> 32) {
			p->where = serial ? serial : frame_where(FRAME_NO_ENTRY);
			return;
		}
		p->where = serial & 0xffffffff;
		p->base = a->start - a->offset;
	} else if (mm && a->start == GET_POINTER(mm, context.vdso)) {
		p->where = frame_where(a->start >> 32 ? FRAME_VDSO : FRAME_VDSO_32);
		p->base = a->start;
	} else {
		p->where = frame_where(FRAME_GENERATED);
	}
	p->start = a->start;
	p->end = a->end;
}

/* unwind_enter_place makes the place of an address the frame's: one that was found in this
 * sample, or else a new one instead of the oldest. */
static __always_inline void unwind_enter_place(struct scratch *s, __u64 address)
{
	struct unwinding *u = &s->unwinding;
	struct unwind_place *p;

	_Pragma("unroll") for (int i = 0; i < PLACES; i++)
	{
		if (unwind_is_in(&u->places[i], address)) {
			u->at = i;
			return;
		}
	}
	u->oldest++;
	u->at = u->oldest % PLACES;
	p = &u->places[u->at % PLACES];
	unwind_find_place(s, address, p);
	p->how = unwind_how_of(p);
}

static long unwind_loop(__u32 i, struct walk *w)
{
	struct unwinding *u = &w->s->unwinding;
	__u64 address = unwind_address(u), where;
	struct unwind_place *p;

	if (w->frames >= MAX_FRAMES) {
		u->end = END_TOO_DEEP;
		return 1;
	}
	if (!unwind_is_in(&u->places[u->at % PLACES], address))
		unwind_enter_place(w->s, address);
	p = &u->places[u->at % PLACES];
	if (p->how == OUT_OF_MAP && u->method == METHOD_REGS) {
		u->end = END_NO_USER_STACK; /* any more, or yet: the task exits, or executes a program */
		return 1;
	}
	where = p->where | (__u64)u->method << 40;
	if (p->how > BY_FP) {
		if (p->how < OUT_OF_MAP)
			frames_push(w, where, address - p->base);
		u->end = unwind_end_of(p->how);
		u->unfinished = p->how == ABSENT;
		return 1;
	}
	u->shown = address;
	u->end = unwind_step_to_caller(u);
	frames_push(w, where, u->shown - p->base);
	return u->end != END_NOT_TOLD;
}

/* Of struct pt_regs, the words: arch/x86/include/uapi/asm/ptrace.h, and
 * arch/arm64/include/uapi/asm/ptrace.h, where they are x0 to x30, sp, pc, pstate. */
enum { X86_IP = 16, X86_CS = 17, X86_SP = 19, X86_REGS = 21, ARM64_PSTATE = 33, ARM64_REGS = 34 };

#define X86_CS_32 0x23 /* __USER32_CS */
#define ARM64_MODE_32 0x10

/* unwind_is_entering reports whether an NMI came in the first instructions of the kernel, on the way
 * to where the user's registers are kept, so that some there are still those of an entry before:
 * on the user's stack, on one of the CPU's own, or while they are pushed (entry_SYSCALL_64 and
 * error_entry in arch/x86/entry/entry_64.S). */
#define CPU_ENTRY_AREA (0xfffffe0000000000ULL >> 39) /* Documentation/arch/x86/x86_64/mm.rst */
static __always_inline bool unwind_is_entering(struct bpf_perf_event_data *ctx, __u64 regs)
{
	__u64 *at = (__u64 *)ctx, sp = at[X86_SP];

	if (at[X86_CS] & 3)
		return false;
	return !(sp >> 63) || sp >> 39 == CPU_ENTRY_AREA || (sp > regs && sp <= regs + 8 * X86_REGS);
}

/* unwind_read_x86 takes the registers of the user. */
static __always_inline enum stack_end unwind_read_x86(struct bpf_perf_event_data *ctx, struct unwinding *u, __u64 regs)
{
	static const __u8 order[] = {15, 14, 13, 12, 6, 3, 11, 10, 9, 8, 0, 2, 1, 4, 5};

	if (unwind_is_entering(ctx, regs))
		return END_UNREADABLE;
	if (bpf_probe_read_kernel(u->words, 8 * X86_REGS, (void *)regs))
		return END_UNREADABLE;
	if ((u->words[X86_CS] & 3) != 3)
		return END_NO_USER_STACK;
	if ((u->words[X86_CS] & 0xffff) == X86_CS_32)
		return END_COMPAT;
	_Pragma("unroll") for (int i = 0; i < sizeof(order); i++)
		u->registers[order[i]] = u->words[i];
	u->registers[7] = u->words[X86_SP];
	u->ip = u->words[X86_IP];
	u->known = 0xffff;
	return END_NOT_TOLD;
}

static __always_inline enum stack_end unwind_read_arm64(struct unwinding *u, __u64 regs)
{
	if (bpf_probe_read_kernel(u->words, 8 * ARM64_REGS, (void *)regs))
		return END_UNREADABLE;
	if (u->words[ARM64_PSTATE] & ARM64_MODE_32)
		return END_COMPAT;
	if (u->words[ARM64_PSTATE] & 0xf)
		return END_NO_USER_STACK;
	_Pragma("unroll") for (int i = 0; i < 32; i++)
		u->registers[i] = u->words[i];
	u->ip = u->words[32];
	u->known = ~0U;
	return END_NOT_TOLD;
}

/* unwind_begin takes the innermost frame of the user. */
static __always_inline enum stack_end unwind_begin(struct bpf_perf_event_data *ctx, struct walk *w)
{
	struct unwinding *u = &w->s->unwinding;
	struct mm_struct *mm = task_current_mm();
	enum stack_end end;
	__u64 regs;

	if (!mm)
		return END_NO_USER_STACK;
	regs = bpf_task_pt_regs(w->task);
	end = IS_X86 ? unwind_read_x86(ctx, u, regs) : unwind_read_arm64(u, regs);
	if (end)
		return end;
	u->entry = GET(mm, start_stack);
	u->exact = true;
	u->method = METHOD_REGS;
	u->at = u->oldest = 0;
	_Pragma("unroll") for (int i = 0; i < PLACES; i++)
		u->places[i].start = u->places[i].end = 0;
	w->mm = (__u64)mm;
	w->tgid = bpf_get_current_pid_tgid() >> 32;
	recent_expire(w->s);
	if (copy_all) {
		__builtin_memcpy(u->first, u->registers, sizeof(u->first));
		u->first_ip = u->ip;
	}
	return END_NOT_TOLD;
}

/* unwind_user takes the user's part of the stack. */
static __always_inline void unwind_user(struct bpf_perf_event_data *ctx, struct walk *w)
{
	struct unwinding *u = &w->s->unwinding;
	__u32 before = w->frames;

	u->unfinished = false;
	u->end = unwind_begin(ctx, w);
	if (u->end == END_COMPAT)
		frames_walk_user(ctx, w);
	if (!u->end) {
		bpf_loop(MAX_FRAMES + 1, unwind_loop, w, 0);
		w->s->n.unwound++;
		w->s->n.frames += w->frames - before;
	}
	w->ended = u->end;
	w->a = hash_mix(w->a, w->ended);
}

#endif
