#!/bin/sh
# Fetches the kernels that the tests boot into a directory, where they stay:
#
#	getkernels.sh DIRECTORY
#
# They are Debian's, for virtual machines, each with its module for overlayfs; for arm64
# there is also, in DIRECTORY/arm64, what machines of this kind run beside tests. apt gets
# them with lists and settings of its own in DIRECTORY, so that signatures and checksums
# are checked as for all packages, root is not needed, and nothing of the machine's own
# apt is changed.
set -eu
dir=${1:?usage: getkernels.sh DIRECTORY}
mkdir -p "$dir"
cd "$dir"
# Whoever comes second waits, and finds what the first has fetched.
exec 9>lock
if command -v flock >/dev/null; then flock 9; fi

fail() {
	echo "getkernels.sh: $*" >&2
	exit 1
}

# The series, and the package with its image: of several the newest.
kernels='5.10 linux-image-5\.10\.0-[0-9]+-cloud-amd64
6.1 linux-image-6\.1\.0-[0-9]+-cloud-amd64
6.12 linux-image-6\.12\.[0-9.]+\+deb12-cloud-amd64
6.18 linux-image-6\.18\.[0-9.]+\+deb13-cloud-amd64
7.2 linux-binary-7\.2\.[0-9.]+\+deb13-cloud-amd64
6.12-arm64 linux-image-6\.12\.[0-9.]+\+deb12-cloud-arm64'
# The suites that they are in, with the architectures that are taken of each.
suites='debian-security/bullseye-security amd64
debian-security/bookworm-security amd64,arm64
debian/trixie-backports amd64
debian/bookworm arm64'
# Packages and the files that machines of arm64 need of them.
programs='busybox-static bin/busybox
coreutils bin/cat
coreutils bin/sleep
binutils-aarch64-linux-gnu bin/aarch64-linux-gnu-readelf
libc6 ld-linux-aarch64.so.1
libc6 libc.so.6
libctf-nobfd0 libctf-nobfd.so.0
libbinutils libsframe.so.0
libzstd1 libzstd.so.1
zlib1g libz.so.1'
wanted="$kernels
$programs"

if [ "$wanted" = "$(cat list 2>/dev/null)" ] && sha256sum --status -c SHA256SUMS; then
	exit 0
fi
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keyring" ] || fail "there is no $keyring: install debian-archive-keyring"

rm -rf apt arm64 list SHA256SUMS
mkdir -p apt/lists/partial apt/cache/archives/partial arm64/bin arm64/lib
echo "$suites" | while read -r suite arches; do
	echo "deb [arch=$arches signed-by=$keyring] http://deb.debian.org/${suite%/*} ${suite#*/} main"
done >apt/sources.list
cat >apt/apt.conf <<EOF
Dir::Etc::sourcelist "$PWD/apt/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$PWD/apt/lists";
Dir::State::status "/dev/null";
Dir::Cache "$PWD/apt/cache";
APT::Architecture "amd64";
APT::Architectures { "amd64"; "arm64"; };
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
EOF
conf=$PWD/apt/apt.conf
apt-get -q -c "$conf" update >apt/log || fail "apt-get update: $(tail -n 3 apt/log)"
available=$(apt-cache -c "$conf" pkgnames linux-)

# download PACKAGE: makes it the archive apt/tar
download() {
	(cd apt && apt-get -q -c "$conf" download "$1" >log) || fail "apt-get download $1: $(tail -n 3 apt/log)"
	dpkg-deb --fsys-tarfile apt/*.deb >apt/tar
	rm apt/*.deb
}

# unpack PACKAGE SERIES: keeps the image and the module that are in it
unpack() {
	download "$1"
	for file in $(tar -tf apt/tar | grep -E '/vmlinuz[^/]*$|/overlay\.ko(\.xz)?$'); do
		case $file in
		*/vmlinuz*) tar -xOf apt/tar "$file" >"vmlinuz-$2" ;;
		*.xz) tar -xOf apt/tar "$file" | xz -dc >"overlay-$2.ko" ;;
		*) tar -xOf apt/tar "$file" >"overlay-$2.ko" ;;
		esac
	done
}

# take FILE TO: keeps a file of apt/tar, which may be a link to one in its directory
take() {
	file=$(tar -tf apt/tar | grep -E "/$1\$" | head -n 1)
	target=$(tar -tvf apt/tar "$file" | sed -n 's/.* -> //p')
	tar -xOf apt/tar "${file%/*}/${target:-${file##*/}}" >"$2"
	chmod 755 "$2"
	[ -s "$2" ] || fail "there is no $1"
}

echo "$kernels" | while read -r series package; do
	newest=$(echo "$available" | grep -Ex "$package" | sort -V | tail -n 1)
	[ -n "$newest" ] || fail "Debian has no package $package any more"
	unpack "$newest:${newest##*-}" "$series"
	case $newest in linux-binary-*) unpack "linux-modules-${newest#linux-binary-}" "$series" ;; esac
	[ -s "vmlinuz-$series" ] && [ -s "overlay-$series.ko" ] || fail "$newest has no image or no module"
	echo "fetched Linux ${newest#linux-*-}"
done
echo "$programs" | while read -r package file; do
	if [ "$package" != "${last:-}" ]; then download "$package:arm64"; fi
	last=$package
	case $file in
	bin/*) take "$file" "arm64/bin/${file##*[-/]}" ;;
	*) take "$file" "arm64/lib/$file" ;;
	esac
done
sha256sum vmlinuz-* overlay-* arm64/*/* >SHA256SUMS
rm -rf apt
echo "$wanted" >list
