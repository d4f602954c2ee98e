// Ways to put the content of one file, of at most a megabyte, into another one: see
// ways. Each way leaves the other one with this content and size.
#include <errno.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/sendfile.h>

struct change {
	const char *path, *from;
	char *content;
	size_t size;
};

// open_to opens a program for writing once nobody runs it any more. Another process that looks at the
// memory of one that has ended, as recorders do, keeps it for some microseconds.
static int open_to(const char *path, int flags) {
	int fd, tries = 0;
	while ((fd = open(path, flags, 0755)) < 0 && errno == ETXTBSY && tries++ < 10000)
		usleep(1000);
	CHECK(fd >= 0);
	return fd;
}

static void put(int fd, struct change *c, off_t at) {
	CHECK(pwrite(fd, c->content, c->size, at) == (ssize_t)c->size);
}

static void by_write(struct change *c) {
	int fd = open_to(c->path, O_WRONLY);
	put(fd, c, 0);
	CHECK(!close(fd));
}

static void by_truncating(struct change *c) {
	int fd = open_to(c->path, O_WRONLY | O_TRUNC);
	put(fd, c, 0);
	CHECK(!close(fd));
}

// map_shared maps a file, and reads all of it: so its pages may be writable from then on.
static char *map_shared(struct change *c) {
	int fd = open_to(c->path, O_RDWR);
	volatile char *m = mmap(0, c->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(m != MAP_FAILED);
	for (size_t at = 0; at < c->size; at += 512)
		(void)m[at];
	CHECK(!close(fd));
	return (char *)m;
}

static void by_mapping(struct change *c) {
	char *m = map_shared(c);
	memcpy(m, c->content, c->size);
	CHECK(!munmap(m, c->size));
}

// by_kept_mapping writes to a mapping that the last change has left, whose pages may be
// writable still.
static void by_kept_mapping(struct change *c) {
	static char *path, *m;
	if (!path || strcmp(path, c->path)) {
		CHECK(!path || !munmap(m, c->size));
		path = strdup(c->path);
		m = map_shared(c);
	}
	memcpy(m, c->content, c->size);
}

static void put_other(struct change *c, const struct timespec *times) {
	char other[4096];
	CHECK(snprintf(other, sizeof(other), "%s.new", c->path) < (int)sizeof(other));
	int fd = open_to(other, O_WRONLY | O_CREAT | O_EXCL);
	put(fd, c, 0);
	CHECK(!times || !futimens(fd, times));
	CHECK(!close(fd) && !rename(other, c->path));
}

static void by_rename(struct change *c) { put_other(c, 0); }

// by_rename_set_back gives the other file the times of this one.
static void by_rename_set_back(struct change *c) {
	struct stat was;
	CHECK(!stat(c->path, &was));
	struct timespec times[] = {was.st_atim, was.st_mtim};
	put_other(c, times);
}

static void by_hole(struct change *c) {
	int fd = open_to(c->path, O_RDWR);
	CHECK(!fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, c->size));
	put(fd, c, 0);
	CHECK(!close(fd));
}

// by_collapse puts the content behind the old one, and takes that away.
static void by_collapse(struct change *c) {
	int fd = open_to(c->path, O_RDWR);
	put(fd, c, c->size);
	CHECK(!fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, c->size));
	CHECK(!close(fd));
}

static void by_reflink(struct change *c) {
	int fd = open_to(c->path, O_RDWR), from = open_to(c->from, O_RDONLY);
	CHECK(!ioctl(fd, FICLONE, from));
	CHECK(!close(fd) && !close(from));
}

static void by_copy(struct change *c) {
	int fd = open_to(c->path, O_WRONLY), from = open_to(c->from, O_RDONLY);
	for (size_t left = c->size; left > 0;) {
		ssize_t n = copy_file_range(from, 0, fd, 0, left, 0);
		if (n < 0 && errno == EXDEV)
			n = sendfile(fd, from, 0, left);
		CHECK(n > 0);
		left -= n;
	}
	CHECK(!close(fd) && !close(from));
}

static void by_direct_write(struct change *c) {
	int fd = open_to(c->path, O_WRONLY | O_DIRECT);
	put(fd, c, 0);
	CHECK(!close(fd));
}

// by_write_set_back gives the file the times back that it had before.
static void by_write_set_back(struct change *c) {
	struct stat was;
	int fd = open_to(c->path, O_WRONLY);
	CHECK(!fstat(fd, &was));
	put(fd, c, 0);
	struct timespec times[] = {was.st_atim, was.st_mtim};
	CHECK(!futimens(fd, times) && !close(fd));
}

static const struct {
	const char *name;
	void (*change)(struct change *);
} ways[] = {
	{"write", by_write},
	{"truncate", by_truncating},
	{"mapping", by_mapping},
	{"kept-mapping", by_kept_mapping},
	{"rename", by_rename},
	{"rename-set-back", by_rename_set_back},
	{"hole", by_hole},
	{"collapse", by_collapse},
	{"reflink", by_reflink},
	{"copy", by_copy},
	{"direct", by_direct_write},
	{"set-back", by_write_set_back},
};

static void change_file(const char *way, const char *path, const char *from) {
	static _Alignas(4096) char content[1 << 20];
	int fd = open_to(from, O_RDONLY);
	ssize_t n = read(fd, content, sizeof(content));
	CHECK(n > 0 && !close(fd));
	struct change c = {path, from, content, n};
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
		if (!strcmp(ways[i].name, way)) {
			ways[i].change(&c);
			return;
		}
	fprintf(stderr, "unknown way %s\n", way);
	_exit(1);
}

// mount_other mounts an image of a file system at the place of another one, which those who
// still use it keep. The device is mostly the same one.
static void mount_other(const char *dir, const char *image, const char *type) {
	int control = open_to("/dev/loop-control", O_RDWR), file = open_to(image, O_RDONLY), fd;
	struct loop_config config = {.fd = file, .info.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR};
	char device[32];
	CHECK(!umount2(dir, MNT_DETACH) || errno == EINVAL); // or none is there
	for (int tries = 0;; tries++) {
		int number = ioctl(control, LOOP_CTL_GET_FREE);
		CHECK(number >= 0 && tries < 100);
		snprintf(device, sizeof(device), "/dev/loop%d", number);
		fd = open_to(device, O_RDONLY);
		if (!ioctl(fd, LOOP_CONFIGURE, &config))
			break;
		CHECK(errno == EBUSY && !close(fd)); // somebody was faster
	}
	CHECK(!mount(device, dir, type, MS_RDONLY, 0));
	CHECK(!close(fd) && !close(file) && !close(control));
}
