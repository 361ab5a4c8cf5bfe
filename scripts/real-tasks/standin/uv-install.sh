# Stand-in for uv's installer: it puts the image's own uv where the real one would.
set -eu
bin=$HOME/.local/bin
mkdir -p "$bin"
cp -f /opt/standin/uv /opt/standin/uvx "$bin/"
cat >"$bin/env" <<'END'
case ":${PATH}:" in
*:"$HOME/.local/bin":*) ;;
*) export PATH="$HOME/.local/bin:$PATH" ;;
esac
END
echo "uv is installed in $bin"
